"""CPU seconds of one PPO update, GRU 128, 1024 worlds x 24 ticks, one thread: ours against rsl_rl 5.5.1's.

Everything that follows the collection of an iteration: values, returns, 5 epochs of 4 minibatches,
normalisers, learning rate, what is logged. The task is quadruped-velocity; rsl_rl gets a rollout of ours with
H = 1, so that both have the same observations and the same ends of episodes.

Layers are 128 wide, but the designs differ. Ours: layer, GRU, layer, actions; the critic is feed-forward, of
two layers, and reads the true state and the chunk's plan; its values before the update are part of what is
measured. rsl_rl's: GRU, layer, actions; its recurrent configurations give the critic a GRU too; its values
before the update come with the collection, and are not measured. The targets are for that. It can also
have a feed-forward critic of two layers beside the recurrent actor: those ratios are printed.

rsl_rl is no part of any extra: in an environment of its own, `pip install rsl-rl-lib==5.5.1`, and `--python`
is its interpreter. Rounds are interleaved after one to warm up; medians of their ratios.

    python bench/ppo_update.py --python PYTHON [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from peer import Peer

from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.ppo import PPO

LEAST = {1: 1.0, 8: 3.0}
"""Their CPU seconds over ours, by H."""
WORLDS, TICKS = 1024, 24
EPOCHS, MINIBATCHES = 5, 4
WIDTH = 128
CRITICS = ("recurrent", "feed-forward")


class TimedPPO(PPO):
    """Tells collection and update apart."""

    collect_seconds = 0.0

    def collect(self) -> dict[str, float]:
        start = time.process_time()
        terms = super().collect()
        self.collect_seconds = time.process_time() - start
        return terms

    def update_seconds(self) -> float:
        """Of the next iteration."""
        start = time.process_time()
        self.iterate()
        return time.process_time() - start - self.collect_seconds


def make_trainer(chunk_size: int) -> TimedPPO:
    return TimedPPO.from_config(
        TrainConfig(
            task="quadruped-velocity",
            ticks=1,
            policy=PolicyConfig(memory="gru", decoder="mlp", hidden_size=WIDTH, chunk_size=chunk_size),
            ppo=PPOConfig(
                decisions=TICKS // chunk_size, epochs=EPOCHS, minibatches=MINIBATCHES, critic_size=WIDTH
            ),
            num_worlds=WORLDS,
            device="cpu",
        )
    )


def write_rollout(trainer: PPO, path: Path) -> None:
    """What `trainer`, of H = 1, collected last, as `peer_rsl_rl.py` reads it."""
    rollout = trainer.rollout
    with torch.no_grad():
        features = trainer.policy.features(rollout.sources)
    np.savez(
        path,
        actor=features,
        critic=rollout.critic[:, :, 0],
        reward=rollout.reward[..., 0],
        done=(rollout.terminated | rollout.truncated)[..., 0],
        time_out=rollout.truncated[..., 0],
        action_size=trainer.policy.spec.action_size,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="interpreter of an environment with rsl_rl")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    trainers = {f"H={size}": make_trainer(size) for size in LEAST}
    trainers["H=1"].iterate()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollout.npz"
        write_rollout(trainers["H=1"], path)
        arguments = [str(size) for size in (EPOCHS, MINIBATCHES, WIDTH)]
        peers = {
            critic: Peer(options.python, "peer_rsl_rl.py", str(path), critic, *arguments)
            for critic in CRITICS
        }
    sides = {name: trainer.update_seconds for name, trainer in trainers.items()} | {
        f"rsl_rl, {critic} critic": peer.turn for critic, peer in peers.items()
    }
    rounds: list[dict[str, float]] = []
    for turn in range(options.rounds + 1):
        seconds = {name: sides[name]() for name in (sides if turn % 2 else reversed(sides))}
        line = "  ".join(f"{name} {seconds[name]:.2f} s" for name in sides)
        print(line + ("" if turn else "  (warm-up)"), flush=True)
        if turn:
            rounds.append(seconds)
    for peer in peers.values():
        peer.close()
    value = {}
    for critic in CRITICS:
        for name in trainers:
            ratios = [seconds[f"rsl_rl, {critic} critic"] / seconds[name] for seconds in rounds]
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"{name}: {middle:.2f} ({low:.2f} to {high:.2f}) times rsl_rl with a {critic} critic")
            if critic == "recurrent":
                value[name] = round(middle, 3)
    target = {f"H={size}": least for size, least in LEAST.items()}
    holds = all(value[name] >= least for name, least in target.items())
    name = "speed of a PPO update against rsl_rl 5.5.1"
    print(json.dumps({"name": name, "value": value, "target": target, "holds": holds}))


if __name__ == "__main__":
    main()

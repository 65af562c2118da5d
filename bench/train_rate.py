"""Env steps/s in training, HalfCheetah-v5: recurrent PPO against sb3-contrib's RecurrentPPO.

Wall-clock time of whole iterations, simulation and update. Ours: GRU 128, 1024 worlds, 4 epochs, deciding at
every tick (H = 1) and at every eighth (H = 8, `mlp` decoder). Theirs: LSTM 128, 16 environments, 4 epochs,
its defaults otherwise; in one process and in one per environment, and the better of the two in each round
counts. Both cores are free to all. Rounds are interleaved after one to warm up; medians of their ratios.

sb3-contrib is no part of any extra: in an environment of its own, `pip install sb3-contrib
'gymnasium[mujoco]'`, and `--python` is its interpreter.

    python bench/train_rate.py --python PYTHON [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from peer import Peer

from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.ppo import PPO

TASK = "HalfCheetah-v5"
LEAST = {1: 5.0, 8: 10.0}
"""Our rate over theirs, by H."""
DECISIONS = {1: 32, 8: 16}
"""Per world and iteration, by H."""
WORLDS = 1024
THEIR_ENVS = 16


def ours(chunk_size: int, threads: int) -> Callable[[], float]:
    trainer = PPO.from_config(
        TrainConfig(
            task=TASK,
            ticks=1,
            policy=PolicyConfig(memory="gru", decoder="mlp", hidden_size=128, chunk_size=chunk_size),
            ppo=PPOConfig(epochs=4, minibatches=4, decisions=DECISIONS[chunk_size]),
            num_worlds=WORLDS,
            device="cpu",
            threads=threads,
        )
    )
    # As much as takes the other side about as long.
    iterations = max(1, 2 * WORLDS * 32 // trainer.ticks_per_iteration)

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(iterations):
            trainer.iterate()
        return iterations * trainer.ticks_per_iteration / (time.perf_counter() - start)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="interpreter of an environment with sb3-contrib")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of our update")
    parser.add_argument("--their-threads", type=int, default=1, help="for their tensors")
    options = parser.parse_args()
    their = [str(THEIR_ENVS), str(options.their_threads)]
    peers = {kind: Peer(options.python, "peer_sb3.py", kind, *their) for kind in ("dummy", "subproc")}
    sides = {f"H={size}": ours(size, options.threads) for size in LEAST} | {
        f"sb3 {kind}": peer.turn for kind, peer in peers.items()
    }
    ratios: dict[str, list[float]] = {f"H={size}": [] for size in LEAST}
    for turn in range(options.rounds + 1):
        rates = {name: sides[name]() for name in (sides if turn % 2 else reversed(sides))}
        line = "  ".join(f"{name} {rates[name]:,.0f}/s" for name in sides)
        print(line + ("" if turn else "  (warm-up)"), flush=True)
        if turn:
            theirs = max(rates[f"sb3 {kind}"] for kind in peers)
            for name, found in ratios.items():
                found.append(rates[name] / theirs)
    for peer in peers.values():
        peer.close()
    for name, found in ratios.items():
        low, middle, high = min(found), statistics.median(found), max(found)
        print(f"{name}: {middle:.1f} ({low:.1f} to {high:.1f}) times sb3-contrib")
    value = {name: round(statistics.median(found), 2) for name, found in ratios.items()}
    target = {f"H={size}": least for size, least in LEAST.items()}
    holds = all(value[name] >= least for name, least in target.items())
    name = f"training env steps/s on {TASK} against sb3-contrib RecurrentPPO"
    print(json.dumps({"name": name, "value": value, "target": target, "holds": holds}))


if __name__ == "__main__":
    main()

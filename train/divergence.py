"""The last moments of a world whose physics diverged in training, kept so that they can be watched."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from .config import TrainConfig
from .files import decode_config, write_atomically

if TYPE_CHECKING:  # a dump must be readable before rendering is prepared, and so before MuJoCo is imported
    from andante.sim.env import Env

    from .ppo import PPO

SCHEMA = "andante divergence 1"


@dataclass(frozen=True)
class Divergence:
    """One world from where its episode began, or the iteration in it, to where physics diverged."""

    config: TrainConfig
    """Of the run."""
    device: str
    """That has the run's engine on any machine, as `make` knows it."""
    world: int
    episode: int
    tick: int
    """Of that episode, at which the last decision was made."""
    before: dict[str, Any]
    """State of the environment, of that world alone."""
    sources: dict[str, Tensor]
    """What was measured then {name: [1, *shape]}."""
    critic: Tensor
    """True state then [1, C]."""
    actions: Tensor
    """Of each decision from then on [K, s, A], SI units."""

    def __str__(self) -> str:
        return (
            f"physics of {self.config.task} diverged in world {self.world}, episode {self.episode}, "
            f"after the decision of tick {self.tick}"
        )

    @classmethod
    def find(cls, trainer: PPO, config: TrainConfig, start: dict[str, Any]) -> Divergence | None:
        """The first one of the last iteration, simulated again from `start`, the trainer's state before it.

        None where it does not show: in another package's environment, whose state cannot be saved, or where
        decisions are not on time.
        """
        saved = start["scheduler"]["env"]
        if "state" not in saved or trainer.env.timing is not None:
            return None
        env: Any = trainer.env
        now = env.state_dict()
        try:
            return cls._find(env, trainer, config, saved)
        finally:
            env.load_state_dict(now)

    @classmethod
    def _find(cls, env: Env, trainer: PPO, config: TrainConfig, start: dict[str, Any]) -> Divergence | None:
        rollout: Any = trainer.rollout
        actions = list(rollout.actions)
        env.load_state_dict(start)
        place = _first(env, actions)
        if place is None:
            return None
        k, world = place
        begun = max(rollout.reset[: k + 1, world].nonzero().flatten().tolist(), default=0)
        env.load_state_dict(start)
        for chosen in actions[:begun]:
            env.step(chosen)
        before = _only(world, env.state_dict())
        return cls(
            config=config,
            device="cpu" if env.device_name == "cpu" else "warp-cpu",
            world=int(before["world"]),
            episode=int(before["episode"]),
            tick=int(before["tick"]) + (k - begun) * trainer.policy.execution_horizon,
            before=before,
            sources={name: values[begun, world, None].clone() for name, values in rollout.sources.items()},
            critic=rollout.critic[begun, world, :1, : trainer.env.critic_size].clone(),
            actions=torch.stack([chosen[world] for chosen in actions[begun : k + 1]]),
        )

    def write(self, path: Path) -> None:
        """Write atomically."""
        content = {"schema": SCHEMA, **vars(self), "config": msgspec.json.encode(self.config).decode()}
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def read(cls, path: Path) -> Divergence | None:
        """Read one; tensors and plain values only, no code is run. None if the file is something else.

        Raises:
            AndanteError: the configuration in it is not understood.
        """
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
            if content.pop("schema") != SCHEMA:
                return None
        except Exception:  # torch raises a dozen types for files that are foreign or cut
            return None
        return cls(config=decode_config(content.pop("config"), str(path)), **content)


def _first(env: Env, actions: list[Tensor]) -> tuple[int, int] | None:
    """The decision, and the world, of the first divergence under actions of all worlds [B, s, A] each."""
    for k, chosen in enumerate(actions):
        diverged = env.step(chosen).diverged
        if diverged is not None and diverged.any():
            return k, int(diverged.any(1).nonzero()[0])
    return None


def _only(world: int, state: dict[str, Any]) -> dict[str, Any]:
    """One world's part of nested state, whose tensors have the worlds first; a curriculum is everybody's."""
    part: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, dict) and key != "curriculum":
            value = _only(world, value)
        elif isinstance(value, Tensor):
            value = value[world : world + 1].clone()
        part[key] = value
    return part

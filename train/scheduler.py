"""The chunk scheduler: between policies, which decide, and environments, which know nothing of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from andante.sim.env import Outcome
from andante.sim.worlds import Worlds

from .finite import require_finite
from .policy import Policy


@dataclass(frozen=True)
class Decision:
    """One decision of every world and what came of it (B worlds, s ticks, A actions, S state)."""

    sources: dict[str, Tensor]
    """What was decided on {name: [B, n]}."""
    critic: Tensor
    """True state at the decision [B, C]."""
    reset: Tensor
    """Bool [B]: decided from the initial state, in a new episode."""
    mean: Tensor
    """Means of the choices whose actions were executed [B, F, A]; F = s, or 1 where the decoder ties."""
    u: Tensor
    """The choices, before decoding [B, F, A]."""
    actions: Tensor
    """Executed [B, s, A], SI units."""
    outcome: Outcome
    """Outcome of the s ticks."""


class ChunkScheduler:
    """Runs a policy every `execution_horizon` ticks and plays its chunks, in all worlds at once.

    It owns what a world carries from decision to decision: memory state, reset flag, observation. All
    worlds share s, so each decision is one call of the environment, in which the chunk's plan and phase
    live and end: a world that ends in mid-chunk is masked, and after its restart the next thing is a new
    decision from the initial state.
    """

    def __init__(self, env: Worlds, policy: Policy) -> None:
        self.env = env
        self.policy = policy
        self.restart()

    def restart(self) -> None:
        """Begin a new episode in every world."""
        self.observation = self.env.reset()
        self.h = self.policy.initial_state(self.env.num_worlds)
        self.reset = torch.ones(self.env.num_worlds, dtype=torch.bool, device=self.env.device)

    @torch.no_grad()
    def advance(self, noise: Tensor | None = None) -> Decision:
        """Decide and play, exploring with standard normal `noise` [B, F, A], or deterministically.

        Raises:
            NonFiniteError: a source or an action is not finite.
        """
        observation, reset = self.observation, self.reset
        for name, value in observation.sources.items():
            require_finite(f"source {name!r}", value)
        h = torch.where(reset[:, None], self.policy.initial_state(len(self.h)), self.h)
        mean, after = self.policy.decide(observation.sources, h)
        mean = mean[:, : self.policy.choices]
        u = mean if noise is None else mean + self.policy.log_std.exp() * noise
        require_finite("action", u)
        actions = self.policy.decode(self.policy.chunk(u, h)[:, : self.policy.execution_horizon])
        outcome = self.env.step(actions)
        self.observation, self.reset, self.h = (
            outcome.observation,
            outcome.done,
            self.policy.remember(after, u),
        )
        return Decision(observation.sources, observation.critic, reset, mean, u, actions, outcome)

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact continuation needs, the environment's state included."""
        return {
            "env": self.env.state_dict(),
            "h": self.h,
            "reset": self.reset,
            "sources": self.observation.sources,
            "critic": self.observation.critic,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.env.load_state_dict(state["env"])
        device = self.env.device
        self.h, self.reset = state["h"].to(device), state["reset"].to(device)
        sources = {name: value.to(device) for name, value in state["sources"].items()}
        self.observation = type(self.observation)(sources=sources, critic=state["critic"].to(device))

"""Memory, policies, and chunked PPO."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import PolicyConfig, PPOConfig, TrainConfig
    from .policy import Policy
    from .ppo import PPO

__all__ = ["PPO", "PPOConfig", "Policy", "PolicyConfig", "TrainConfig"]

_HOMES = {"config": {"PPOConfig", "PolicyConfig", "TrainConfig"}, "policy": {"Policy"}, "ppo": {"PPO"}}


def __getattr__(name: str) -> object:
    # Loaded on first use: the command line must answer before torch is imported.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

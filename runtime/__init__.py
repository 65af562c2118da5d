"""Running a policy file on a robot: numpy and onnxruntime only, Python 3.10 and later."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .artifact import Artifact as Artifact, Trace as Trace, read_artifact as read_artifact
    from .command import JointCommand as JointCommand, Sample as Sample
    from .contract import Contract as Contract
    from .controller import Controller as Controller
    from .errors import (
        AndanteError as AndanteError,
        ArtifactError as ArtifactError,
        ProfileError as ProfileError,
    )
    from .loop import LoopReport as LoopReport, RealtimeLoop as RealtimeLoop
    from .policy import PolicySession as PolicySession, load_policy as load_policy
    from .profile import Profile as Profile, load_profile as load_profile
    from .robots.base import Robot as Robot
    from .worker import AsynchronousWorker as AsynchronousWorker

_HOMES = {
    "artifact": ("Artifact", "Trace", "read_artifact"),
    "command": ("JointCommand", "Sample"),
    "contract": ("Contract",),
    "controller": ("Controller",),
    "errors": ("AndanteError", "ArtifactError", "ProfileError"),
    "loop": ("LoopReport", "RealtimeLoop"),
    "policy": ("PolicySession", "load_policy"),
    "profile": ("Profile", "load_profile"),
    "robots.base": ("Robot",),
    "worker": ("AsynchronousWorker",),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str) -> object:
    # Loaded on first use: the command line must answer before onnxruntime is imported.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Running a policy file on a robot: numpy and onnxruntime only, Python 3.10 and later."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .artifact import Artifact, Trace, read_artifact, seal
    from .command import JointCommand, Sample
    from .contract import Contract
    from .controller import Controller
    from .errors import AndanteError, ArtifactError, ProfileError
    from .loop import LoopReport, RealtimeLoop
    from .policy import PolicySession, load_policy
    from .profile import Profile, load_profile
    from .robots.base import Robot

__all__ = [
    "AndanteError",
    "Artifact",
    "ArtifactError",
    "Contract",
    "Controller",
    "JointCommand",
    "LoopReport",
    "PolicySession",
    "Profile",
    "ProfileError",
    "RealtimeLoop",
    "Robot",
    "Sample",
    "Trace",
    "load_policy",
    "load_profile",
    "read_artifact",
    "seal",
]

_HOMES = {
    "artifact": {"Artifact", "Trace", "read_artifact", "seal"},
    "command": {"JointCommand", "Sample"},
    "contract": {"Contract"},
    "controller": {"Controller"},
    "errors": {"AndanteError", "ArtifactError", "ProfileError"},
    "loop": {"LoopReport", "RealtimeLoop"},
    "policy": {"PolicySession", "load_policy"},
    "profile": {"Profile", "load_profile"},
    "robots.base": {"Robot"},
}


def __getattr__(name: str) -> object:
    # Loaded on first use: the command line must answer before onnxruntime is imported.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Where a run comes from: versions, device, seed and commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ppo import PPO


def find_provenance(trainer: PPO) -> dict[str, str]:
    """What is to be known of a run that begins now."""
    return {
        **{f"train.{name}": version(name) for name in ("andante", "torch", "mujoco", "numpy")},
        "train.python": platform.python_version(),
        "train.seed": str(trainer.seed),
        "train.device": trainer.env.device_name,
        **_git_state(),
    }


def _git_state() -> dict[str, str]:
    """Commit that the code is at, if it runs from its repository."""
    file = Path(__file__).resolve()
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=40"]
        return {"train.git": subprocess.check_output(describe, text=True).strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}

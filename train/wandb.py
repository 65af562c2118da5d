"""Weights & Biases (extra `wandb`): the figures of `metrics.jsonl`, by ticks."""

from __future__ import annotations

import importlib
import secrets
from pathlib import Path
from typing import Any

import msgspec

from andante.runtime.errors import AndanteError

from .config import TrainConfig
from .files import WANDB_ID, write_atomically


def load_wandb() -> Any:
    """The package.

    Raises:
        AndanteError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module("wandb")
    except ModuleNotFoundError as error:
        raise AndanteError(
            f"--wandb needs {error.name}, which is not installed: in andante's folder: pip install '.[wandb]'"
        ) from None


def start(project: str, config: TrainConfig, run_dir: Path) -> Any:
    """Begin, or after a resume go on with, the run that stands for this folder.

    Raises:
        AndanteError: not logged in, or nobody answers.
    """
    wandb = load_wandb()
    path = run_dir / WANDB_ID
    if not path.exists():
        write_atomically(path, secrets.token_hex(4).encode())
    try:
        return wandb.init(
            project=project,
            name=run_dir.name,
            id=path.read_text(),
            resume="allow",
            dir=run_dir,
            config=msgspec.to_builtins(config),
            settings=wandb.Settings(console="off"),
        )
    except wandb.Error as error:
        raise AndanteError(f"--wandb {project}: {' '.join(str(error).split())}") from None

"""What is in a run folder, by name, and how it is written: whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from andante.runtime.errors import AndanteError

from .config import TrainConfig

CHECKPOINT = "checkpoint.pt"
CONFIG = "config.json"
PROVENANCE = "provenance.json"
METRICS = "metrics.jsonl"
CURVE = "learning_curve.png"
RESULT = "result.json"
DUMP = "dump.pt"
DIVERGED = "diverged.pt"
WANDB_ID = "wandb_id"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: whenever the process dies, the old or the new content is there, whole.

    Raises:
        AndanteError: no permission, no space; the old content is there.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise AndanteError(f"{path}: not written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: Any) -> None:
    """Write atomically, indented."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def decode_config(text: str | bytes, where: str) -> TrainConfig:
    """Parse a run's configuration.

    Raises:
        AndanteError: names `where`, the key, the expected and the found.
    """
    try:
        return msgspec.json.decode(text, type=TrainConfig)
    except (msgspec.DecodeError, AndanteError) as error:
        raise AndanteError(f"{where}: {error}") from None


def read_config(path: Path) -> TrainConfig:
    """Read a file like a run's `config.json`.

    Raises:
        AndanteError: there is none, or it is wrong.
    """
    try:
        return decode_config(path.read_bytes(), str(path))
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}") from None

"""The folder of a run: when it may be begun in, and that one process at a time trains there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from andante.runtime.errors import AndanteError

from .files import CHECKPOINT, CONFIG, CURVE, DIVERGED, DUMP, METRICS, PROVENANCE, RESULT

LOCK = ".lock"


@contextmanager
def claim(run_dir: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Train in this folder, which is made if need be, and let no other process do so meanwhile.

    Unless `resume`, it must be empty, or with `overwrite` hold a run or what is left of one.

    Raises:
        AndanteError: something else is there, another process trains there, or a file can't be written.
    """
    try:
        if not resume:
            _require_free(run_dir, overwrite)
        run_dir.mkdir(parents=True, exist_ok=True)
        with (run_dir / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AndanteError(f"{run_dir}: another process trains in this folder") from None
            yield
    except BrokenPipeError:  # of the output, which is the command line's
        raise
    except OSError as error:
        raise AndanteError(f"{error.filename or run_dir}: {error.strerror or error}") from None


def leftovers(run_dir: Path) -> list[Path]:
    """What processes that were killed while they wrote a file have left."""
    names = (CHECKPOINT, CONFIG, PROVENANCE, METRICS, CURVE, RESULT, DUMP, DIVERGED)
    return [path for name in names for path in run_dir.glob(f"{name}.*tmp")]


def _require_free(run_dir: Path, overwrite: bool) -> None:
    if run_dir.exists() and not run_dir.is_dir():
        raise AndanteError(f"{run_dir}: expected a folder, found a file")
    there = {path.name for path in run_dir.iterdir()} - {LOCK} if run_dir.is_dir() else set()
    if CHECKPOINT in there:
        if not overwrite:
            raise AndanteError(f"{run_dir}: holds a run; continue it (--resume) or replace it (--overwrite)")
    elif not there <= {CONFIG, *(path.name for path in leftovers(run_dir))}:
        raise AndanteError(f"{run_dir}: not empty, and holds no run; choose another folder")
    elif there and not overwrite:
        raise AndanteError(f"{run_dir}: holds a run that was killed as it began; replace it (--overwrite)")

"""`andante replay`, `andante diff` and `andante report`: what can be made of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ..errors import AndanteError
from ..policy import load_policy
from . import replay as replaying
from .recording import Recording, read_recording
from .report import facts, write_report


def replay(recording: Annotated[tuple[Path, ...], tyro.conf.Positional], policy: Path) -> int:
    """Run a recording through the controller again, and find the first tick that differs.

    Exit status: 0 if every command, state and fault is the same, bit by bit; 1 if not. On another machine
    than the recorded one, a difference in the last bits of an inference is to be expected.

    Args:
        recording: file of `andante run --record`, or all parts of one.
        policy: the policy file that was run.
    """
    found = _read(*recording)
    result = replaying.replay(found, load_policy(policy))
    if result.difference is not None:
        print(f"differs at {result.difference}")
        print(f"equal before it: {result.ticks} ticks")
    else:
        print(f"equal: {result.ticks} ticks")
    if result.unfinished is not None:
        print(f"not compared from there on: {result.unfinished}")
    return 0 if result.equal else 1


def diff(recordings: Annotated[tuple[Path, ...], tyro.conf.Positional]) -> int:
    """Compare two recordings, bit by bit.

    Exit status: 0 if they are equal but for wall-clock time and timings; 1 if not.

    Args:
        recordings: two files.
    """
    if len(recordings) != 2:
        raise AndanteError(f"two recordings can be compared, found {len(recordings)}")
    headers, groups = replaying.compare(*map(_read, recordings))
    for header in headers:
        print(f"header: {header}")
    for name, result in groups.items():
        found = result.difference or result.unfinished
        print(f"{replaying.COMPARED[name]:<20}{result.ticks} ticks equal{'; ' + found if found else ''}")
    return 0 if all(result.equal for result in groups.values()) and not headers else 1


def report(
    recording: Annotated[tuple[Path, ...], tyro.conf.Positional],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
) -> int:
    """Plot a recording over time: states, measurements, actions, commands, ages and timings.

    Args:
        recording: file of `andante run --record` or of a fault, or all parts of one.
        output: `.html`, a page in one file, or `.png`; replaced where it exists.
    """
    found = _read(*recording)
    write_report(found, output)
    for name, value in facts(found).items():
        print(f"{name:<15} {value}")
    print(f"{'report':<15} {output}")
    return 0


def _read(*paths: Path) -> Recording:
    if not paths:
        raise AndanteError("no recording given")
    recording = read_recording(*paths)
    if recording.damage:
        print(f"damaged: {recording.damage}")
    return recording

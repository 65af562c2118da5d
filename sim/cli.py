"""`andante tasks`."""

from __future__ import annotations

from typing import Annotated

import tyro

from .spec import FAMILIES, TASKS, get_spec
from .spec.describe import describe


def tasks(name: Annotated[str | None, tyro.conf.Positional] = None) -> None:
    """List the tasks, or describe one.

    Args:
        name: Task to describe.
    """
    if name is not None:
        print(describe(get_spec(name)))
        return
    rows = [("task", "return to expect", "what")]
    for spec in TASKS.values():
        expected = "" if spec.expected is None else "{:g} to {:g}".format(*spec.expected)
        rows.append((spec.name, expected, spec.summary))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(f"\nalso: {', '.join(FAMILIES)}")

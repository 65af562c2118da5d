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
    width = max(map(len, TASKS))
    for spec in TASKS.values():
        print(f"{spec.name:<{width}}  {spec.summary}")
    print(f"\nalso: {', '.join(FAMILIES)}")

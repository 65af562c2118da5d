"""`andante tasks`."""

from __future__ import annotations

import textwrap
from typing import Annotated

import tyro

from andante.sim.spec import FAMILIES, TASKS, get_spec
from andante.sim.spec.added import added_names
from andante.sim.spec.describe import describe

from .recipes import recipe_options


def tasks(name: Annotated[str | None, tyro.conf.Positional] = None) -> None:
    """List the tasks, or describe one: its table, and the recipe that it is trained with.

    Args:
        name: Task to describe.
    """
    if name is not None:
        print(describe(get_spec(name)))
        print(f"\nrecipe, as options of `andante train {name}`:")
        unbroken = "  ".join(option.replace(" ", "\xa0") for option in recipe_options(name))
        lines = textwrap.wrap(unbroken, 100, break_on_hyphens=False)
        print(textwrap.indent("\n".join(lines), "  ").replace("\xa0", " "))
        return
    rows = [("task", "return to expect", "what")]
    for spec in TASKS.values():
        expected = "" if spec.expected is None else "{:g} to {:g}".format(*spec.expected)
        rows.append((spec.name, expected, spec.summary))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(f"\nalso: {', '.join([*FAMILIES, *added_names()])}")

"""What the declarations of memory probes share."""

from __future__ import annotations

from andante.runtime.contract import ActionTerm, Source
from andante.runtime.errors import AndanteError

TICK_NS = 100_000_000
"""A tick of a world in which nothing moves: nominal, for the contract's sake."""


def reading(name: str, size: int, tick_ns: int = TICK_NS) -> Source:
    """`size` numbers that must be fresh at every tick."""
    return Source(name=name, kind="reading", unit="1", size=size, max_age_ns=tick_ns)


def scores(*choices: str) -> ActionTerm:
    """One score from -1 to 1 per choice; the largest one decides, the first among equals."""
    size = len(choices)
    return ActionTerm(
        name="scores",
        kind="actuator",
        joints=choices,
        unit="1",
        low=(-1.0,) * size,
        high=(1.0,) * size,
        kp=(0.0,) * size,
        kd=(0.0,) * size,
        closed_by="drive",
    )


def parse_integers(name: str, least: int) -> list[int]:
    """The numbers after the slash of a task's name, joined by dashes; none where there is no slash.

    Raises:
        AndanteError: not numbers, or one below `least`.
    """
    _, slash, text = name.partition("/")
    words = text.split("-") if slash else []
    if not all(word.isascii() and word.isdecimal() and int(word) >= least for word in words):
        raise AndanteError(f"task {name}: expected integers of at least {least}, found {text!r}")
    return [int(word) for word in words]

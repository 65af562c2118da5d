"""`tmaze`: a sign at the entrance of a corridor tells which way to turn at its end."""

from __future__ import annotations

from andante.runtime.errors import AndanteError

from .probe import TICK_NS, parse_integers, reading, scores
from .task import Feature, TaskSpec

LENGTHS = (1, 100)


def corridor(name: str) -> tuple[int, int]:
    """Shortest and longest corridor, in ticks: `tmaze/100` means both, `tmaze/1-100` a range.

    Raises:
        AndanteError: neither, nor `tmaze` alone, which means `LENGTHS`.
    """
    lengths = parse_integers(name, least=1) or list(LENGTHS)
    shortest, longest = lengths[0], lengths[-1]
    if len(lengths) > 2 or shortest > longest:
        raise AndanteError(f"task {name}: expected tmaze/LENGTH or tmaze/SHORTEST-LONGEST")
    return shortest, longest


def tmaze_spec(name: str) -> TaskSpec:
    """The declaration of a task; see `corridor` for its name."""
    shortest, longest = corridor(name)
    length = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    return TaskSpec(
        name=name,
        summary=f"remember a sign through a corridor of {length} ticks, then turn the way it said",
        robot_model="none",
        control_period_ns=TICK_NS,
        decimation=1,
        episode_ticks=longest + 1,
        sources=(reading("cue", 2), reading("junction", 1)),
        features=(Feature("cue"), Feature("junction")),
        actions=(scores("left", "right"),),
        start=(),
        reward="1 for the right turn at the junction, else 0",
        termination="the turn at the junction",
        expected=(0.99, 1.0) if name == "tmaze" else None,
    )

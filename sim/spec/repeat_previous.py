"""`repeat-previous`: say which symbol was shown k ticks ago, at every tick."""

from __future__ import annotations

from andante.runtime.errors import AndanteError

from .probe import TICK_NS, parse_integers, reading, scores
from .task import Feature, TaskSpec

SYMBOLS = 4
LAG = 4
"""k unless given."""
ANSWERS = 100
"""Ticks of an episode that are scored."""


def lag(name: str) -> int:
    """k of `repeat-previous/K`; `LAG` for `repeat-previous` alone.

    Raises:
        AndanteError: not one number.
    """
    lags = parse_integers(name, least=0) or [LAG]
    if len(lags) > 1:
        raise AndanteError(f"task {name}: expected repeat-previous/K")
    return lags[0]


def repeat_previous_spec(name: str) -> TaskSpec:
    """The declaration of a task; see `lag` for its name."""
    k = lag(name)
    return TaskSpec(
        name=name,
        summary=f"repeat the symbol of {k} ticks ago, at every tick",
        robot_model="none",
        control_period_ns=TICK_NS,
        decimation=1,
        episode_ticks=k + ANSWERS,
        sources=(reading("symbol", SYMBOLS),),
        features=(Feature("symbol"),),
        actions=(scores(*(f"symbol_{i}" for i in range(SYMBOLS))),),
        start=(),
        reward=f"1/{ANSWERS} for the right symbol, from tick {k} on",
        termination="none",
        expected=(0.88, 1.0) if name == "repeat-previous" else None,
    )

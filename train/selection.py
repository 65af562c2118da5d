"""Which policy of a run is the best: one must win twice, in different episodes.

A single evaluation of many candidates picks the luckiest one. Each world of an evaluation has draws of its
own, as if its seed were another; the two evaluations, the training and the reported result share none.
"""

from __future__ import annotations

from torch import Tensor

from .checkpoint import Best
from .config import TrainConfig
from .evaluate import evaluate
from .policy import Policy

EPISODES = 64
"""Of each evaluation."""
FIRST_SEED = 1_000_000
"""Added to a run's seed, as all of these."""
RESULT_SEED = 2_000_000
SECOND_SEED = 3_000_000


def episode_returns(policy: Policy, config: TrainConfig, offset: int) -> Tensor:
    """Deterministic returns [episodes] in the worlds of a run; `offset` is added to its seed.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
    """
    seed, whole = config.seed + offset, config.randomization.whole
    return evaluate(policy, config.task, EPISODES, seed, randomization=whole).returns


def mean_return(policy: Policy, config: TrainConfig, offset: int) -> float:
    """Mean of `episode_returns`."""
    return float(episode_returns(policy, config, offset).mean())


def challenge(policy: Policy, config: TrainConfig, best: Best | None) -> tuple[float, float | None]:
    """Evaluate a candidate against the best policy so far, a second time only if it wins at first.

    Returns:
        The return of the first evaluation, and the lower of the two if both are above that of the best.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
    """
    first = mean_return(policy, config, FIRST_SEED)
    if best is not None and first <= best.returned:
        return first, None
    score = min(first, mean_return(policy, config, SECOND_SEED))
    return first, None if best is not None and score <= best.returned else score

"""Episodes where learning makes progress, wherever that is.

ALP-GMM: Portelas, Colas, Hofmann, Oudeyer, "Teacher algorithms for curriculum learning of Deep RL in
continuously parameterized environments", CoRL 2019, arXiv 1910.07224. The absolute learning progress (ALP) of
an episode is |score - score of the nearest previous episode|. Gaussian mixtures over (parameters, ALP) are
fitted regularly to the latest episodes; a Gaussian is chosen in proportion to its mean ALP, and gives the
parameters. Here episodes come in batches: previous is what an earlier `update` brought.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .box import Box, Floats, check_scores
from .config import AlpGmmConfig, Range

SMALLEST_DRAW = 2.0**-54
"""Half the step of uniform draws: keeps their normal quantiles finite."""


@dataclass(frozen=True)
class Mixture:
    """What is sampled from: Gaussians over the unit cube."""

    cumulative: Floats
    """Cumulative probability of the components [C]."""
    mean: Floats
    """[C, D]"""
    factor: Floats
    """Cholesky factor of the covariance [C, D, D]."""

    def sample(self, choice: Floats, normal: Floats) -> Floats:
        """Points [k, D] from uniform draws [k] and normal draws [k, D]."""
        component = np.searchsorted(self.cumulative[:-1], choice, side="right")
        points: Floats = self.mean[component] + (self.factor[component] * normal[:, None]).sum(-1)
        return points


class AlpGmm:
    """The ALP-GMM curriculum; see `Curriculum`."""

    def __init__(self, config: AlpGmmConfig, ranges: Sequence[Range]) -> None:
        self.draws = len(ranges) + 2
        self._config = config
        self._box = Box(ranges)
        self._history = np.empty((0, len(ranges) + 2))
        """Latest episodes, oldest first: parameters in the unit cube, score, ALP."""
        self._episodes = 0
        self._since_fit = 0
        self._mixture: Mixture | None = None
        """None until a fit finds progress; draws are uniform then."""

    def sample(self, uniform: Floats) -> Floats:
        """Parameters [k, D] from uniform draws [k, D + 2]."""
        explore, choice, point = uniform[:, 0], uniform[:, 1], uniform[:, 2:]
        if self._mixture is None:
            return self._box.from_unit(point)
        normal = torch.special.ndtri(torch.from_numpy(np.maximum(point, SMALLEST_DRAW))).numpy()
        exploited = self._mixture.sample(choice, normal)
        exploring = explore < self._config.uniform_share
        return self._box.from_unit(np.where(exploring[:, None], point, exploited))

    def update(self, params: Floats, score: Floats) -> None:
        """Measure the progress of each episode, and fit a new mixture when it is time.

        Looking for the nearest episodes costs less in few large updates than in many small ones.

        Raises:
            AndanteError: a score that is not finite.
        """
        check_scores(score)
        unit = self._box.to_unit(params)
        batch = np.column_stack((unit, score, self._progress(unit, score)))
        # The order of episodes must not show, nor may it decide which parameters a window cuts off.
        batch = batch[np.lexsort(batch.T)]
        batch = np.random.default_rng(self._episodes).permutation(batch)
        self._history = np.concatenate((self._history, batch))[-self._config.history :]
        self._episodes += len(batch)
        self._since_fit += len(batch)
        if self._since_fit >= self._config.fit_every:
            self._since_fit = 0
            self._mixture = fit(np.delete(self._history[-self._config.window :], -2, axis=1), self._config)

    def _progress(self, unit: Floats, score: Floats) -> Floats:
        from sklearn.neighbors import NearestNeighbors

        if not len(self._history) or not len(unit):
            return np.zeros(len(unit))
        search = NearestNeighbors(n_neighbors=1, algorithm="kd_tree").fit(self._history[:, :-2])
        nearest = search.kneighbors(unit, return_distance=False)[:, 0]
        progress: Floats = np.abs(score - self._history[nearest, -2])
        return progress

    def state_dict(self) -> dict[str, Any]:
        """History, counts and mixture."""
        mixture = self._mixture
        return {
            "history": torch.from_numpy(self._history),
            "episodes": self._episodes,
            "since_fit": self._since_fit,
            "mixture": mixture and {name: torch.from_numpy(value) for name, value in vars(mixture).items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly."""
        self._history = state["history"].numpy()
        self._episodes = state["episodes"]
        self._since_fit = state["since_fit"]
        mixture = state["mixture"]
        self._mixture = mixture and Mixture(**{name: value.numpy() for name, value in mixture.items()})

    def statistics(self) -> dict[str, float]:
        """`alp`: its mean over the window; `components` of the mixture, 0 while draws are uniform."""
        alp = self._history[-self._config.window :, -1]
        components = 0 if self._mixture is None else len(self._mixture.mean)
        return {"alp": float(alp.mean()) if len(alp) else 0.0, "components": float(components)}


def fit(samples: Floats, config: AlpGmmConfig) -> Mixture | None:
    """Mixture over parameters and ALP [n, D + 1] that is best by AIC; None where there is no progress."""
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    largest = samples[:, -1].max()
    if largest == 0.0:
        return None
    # Scores have any scale; initial clusters and the floor of variances suit the unit cube.
    samples = np.column_stack((samples[:, :-1], samples[:, -1] / largest))
    # With more threads, sums are taken in another order, and results would depend on the machine.
    with threadpool_limits(1), warnings.catch_warnings():
        # A mixture that did not converge competes by its AIC like the others.
        warnings.simplefilter("ignore")
        candidates = [
            GaussianMixture(components, random_state=0).fit(samples)
            for components in range(config.min_components, config.max_components + 1)
        ]
        best = min(candidates, key=lambda candidate: candidate.aic(samples))
    alp = best.means_[:, -1].clip(min=0.0)
    return Mixture(
        cumulative=np.cumsum(alp / alp.sum()),
        mean=best.means_[:, :-1],
        factor=np.linalg.cholesky(best.covariances_[:, :-1, :-1]),
    )

"""Cells of a toy parameter space that a learner masters under ALP-GMM, against uniform sampling.

The toy is that of Portelas et al. 2019 (arXiv 1910.07224; rules as in its code, teachDeepRL), in 2-D:

- the unit square is a grid of 10 x 10 cells, each with a competence of 0 at first;
- an episode with parameters in an unlocked cell raises the cell's competence by 1, up to 100;
- the cell at the origin is unlocked; any other is once one of its neighbours towards the origin (to the left,
  below, or diagonally both) has a competence of 75 or more;
- the score of an episode is the cell's competence after it, divided by 100;
- a cell whose competence is above 75 is mastered; 20 000 episodes are all there are.

Of the authors' set-up, one thing differs: 10 worlds take an episode each at a time. The curricula have their
defaults, and both sides draw from the same random stream. No time is measured, so the figure does not depend
on the speed of the machine. The last line is JSON.

    python bench/curriculum.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import numpy as np

from andante.sim.curriculum import Range, make_curriculum

CELLS = 10
EPISODES = 20_000
WORLDS = 10
FULL = 100
TARGET = 2.0


def mastered(kind: str, seed: int, cells: int = CELLS, episodes: int = EPISODES, full: int = FULL) -> int:
    """Cells that are mastered in the end."""
    curriculum = make_curriculum({"kind": kind}, [Range(name=name, low=0.0, high=1.0) for name in "xy"])
    generator = np.random.default_rng(seed)
    competence = np.zeros((cells, cells))
    for _ in range(episodes // WORLDS):
        params = curriculum.sample(generator.random((WORLDS, 4))[:, : curriculum.draws])
        curriculum.update(params, np.array([episode(competence, point, full) for point in params]))
    return int((competence > 0.75 * full).sum())


def episode(competence: np.ndarray, params: np.ndarray, full: int) -> float:
    """Score of one episode; `competence` [cells, cells] learns from it."""
    x, y = np.minimum(params * len(competence), len(competence) - 1).astype(int)
    before = competence[max(x - 1, 0) : x + 1, max(y - 1, 0) : y + 1].copy()
    before[-1, -1] = full if x == y == 0 else 0
    if (before >= 0.75 * full).any():
        competence[x, y] = min(competence[x, y] + 1, full)
    return float(competence[x, y]) / full


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    ratios = []
    for seed in range(parser.parse_args().seeds):
        cells = {kind: mastered(kind, seed) for kind in ("uniform", "alp_gmm")}
        ratios.append(cells["alp_gmm"] / cells["uniform"])
        print(f"seed {seed}: {cells} of {CELLS**2}, ratio {ratios[-1]:.2f}", flush=True)
    value = statistics.median(ratios)
    report = {
        "name": "curriculum_alp_gmm_over_uniform",
        "value": round(value, 2),
        "target": TARGET,
        "holds": value >= TARGET,
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

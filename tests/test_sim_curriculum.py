"""Curricula choose where progress is, stay in their box, and continue exactly."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from andante.runtime.errors import AndanteError
from andante.sim.curriculum import AlpGmmConfig, Range, make_curriculum
from andante.sim.curriculum.alp_gmm import Mixture, fit

RANGES = [Range(name="mass", low=1.0, high=3.0), Range(name="slope", low=-0.4, high=0.2)]
LOW, HIGH = np.array([[1.0, -0.4], [3.0, 0.2]])
UNIFORM = {"kind": "uniform"}
SUCCESS = {"kind": "success", "start": {"mass": 1.0, "slope": 0.0}, "steps": 4, "episodes": 20}
ALP_GMM = {"kind": "alp_gmm"}
KINDS = pytest.mark.parametrize("config", [UNIFORM, SUCCESS, ALP_GMM], ids=lambda config: config["kind"])


def uniform_draws(curriculum, worlds=100, seed=0):
    return np.random.default_rng(seed).random((worlds, curriculum.draws))


def learn(curriculum, score, rounds=30, worlds=100, seed=0, check=lambda params: None):
    """Let a learner that scores `score(params, round)` follow the curriculum."""
    for i in range(rounds):
        params = curriculum.sample(uniform_draws(curriculum, worlds, seed + i))
        check(params)
        curriculum.update(params, score(params, i))


def progress_in_a_corner(params, i):
    """Scores change from round to round where mass is above 2.5 and slope above 0, and nowhere else."""
    corner = (params[:, 0] > 2.5) & (params[:, 1] > 0.0)
    return np.where(corner, 100.0 * (i % 2), 30.0)


def easy(params, i):
    return np.ones(len(params))


def stay_in_the_box(params):
    assert (params >= LOW).all()
    assert (params <= HIGH).all()


def ends(curriculum):
    figures = curriculum.statistics()
    return [[figures[f"{name}/{end}"] for end in ("low", "high")] for name in ("mass", "slope")]


def test_uniform_covers_the_box_evenly():
    curriculum = make_curriculum(UNIFORM, RANGES)
    params = curriculum.sample(uniform_draws(curriculum, worlds=4000))
    stay_in_the_box(params)
    counts, *_ = np.histogram2d(*params.T, bins=4, range=np.stack((LOW, HIGH), 1))
    assert counts.min() > 190
    assert counts.max() < 310


def test_success_starts_at_the_easy_values_and_grows_to_the_limits_and_no_further():
    curriculum = make_curriculum(SUCCESS, RANGES)
    assert (curriculum.sample(uniform_draws(curriculum)) == [1.0, 0.0]).all()
    learn(curriculum, easy, check=stay_in_the_box)
    assert ends(curriculum) == [[1.0, 3.0], [-0.4, 0.2]]
    params = curriculum.sample(uniform_draws(curriculum, worlds=1000))
    assert np.allclose(params.min(0), LOW, atol=0.01)
    assert np.allclose(params.max(0), HIGH, atol=0.01)


def test_success_grows_by_one_step_at_a_time_and_only_when_enough_episodes_are_known():
    curriculum = make_curriculum(SUCCESS, RANGES)
    start = np.tile([1.0, 0.0], (19, 1))
    curriculum.update(start, np.ones(19))
    assert ends(curriculum) == [[1.0, 1.0], [0.0, 0.0]]
    curriculum.update(start[:1], np.ones(1))
    assert np.allclose(ends(curriculum), [[1.0, 1.5], [-0.1, 0.05]])


def test_success_shrinks_where_it_fails_and_holds_between_the_thresholds():
    curriculum = make_curriculum(SUCCESS, RANGES)
    learn(curriculum, easy)
    mass_and_slope = np.array([[2.9, 0.0], [2.0, 0.19]])
    half = np.tile([0.0, 1.0], 20)
    curriculum.update(mass_and_slope.repeat(40, 0), np.concatenate((half, half)))
    assert ends(curriculum) == [[1.0, 3.0], [-0.4, 0.2]]
    curriculum.update(mass_and_slope.repeat(40, 0), np.concatenate((np.zeros(40), half)))
    assert ends(curriculum) == [[1.0, 2.5], [-0.4, 0.2]]
    learn(curriculum, lambda params, i: np.zeros(len(params)), check=stay_in_the_box, rounds=100)
    assert np.allclose(ends(curriculum), [[1.0, 1.0], [0.0, 0.0]])


def test_success_ignores_episodes_away_from_the_frontier_and_beyond_it():
    curriculum = make_curriculum(SUCCESS, RANGES)
    learn(curriculum, easy, rounds=2)
    before = ends(curriculum)
    assert before[0] == [1.0, 2.0]
    for mass in (1.75, 2.05):
        curriculum.update(np.tile([mass, 0.01], (100, 1)), np.zeros(100))
        assert ends(curriculum) == before


def test_success_grows_from_parameters_that_passed_through_float32():
    config = {"kind": "success", "start": {"mass": 1.1, "slope": 0.1}, "episodes": 20}
    curriculum = make_curriculum(config, RANGES)
    params = curriculum.sample(uniform_draws(curriculum)).astype(np.float32)
    curriculum.update(params, np.ones(100))
    assert np.allclose(ends(curriculum), [[1.09, 1.29], [0.05, 0.11]])


def test_a_range_without_extent_stays_at_its_value():
    ranges = [RANGES[0], Range(name="slope", low=0.1, high=0.1)]
    for config in (UNIFORM, SUCCESS | {"start": {"mass": 1.0, "slope": 0.1}}, ALP_GMM):
        curriculum = make_curriculum(config, ranges)
        learn(curriculum, progress_in_a_corner, rounds=6)
        params = curriculum.sample(uniform_draws(curriculum))
        assert (params[:, 1] == 0.1).all()


def test_alp_gmm_concentrates_where_scores_change():
    curriculum = make_curriculum(ALP_GMM, RANGES)

    def share_in_the_corner():
        params = curriculum.sample(uniform_draws(curriculum, worlds=2000, seed=99))
        return ((params[:, 0] > 2.5) & (params[:, 1] > 0.0)).mean()

    assert share_in_the_corner() == pytest.approx(1 / 12, abs=0.02)
    learn(curriculum, progress_in_a_corner, check=stay_in_the_box)
    assert share_in_the_corner() > 0.5
    assert curriculum.statistics()["alp"] > 10
    assert curriculum.statistics()["components"] >= 2


def test_alp_gmm_keeps_its_share_of_uniform_draws():
    curriculum = make_curriculum(ALP_GMM | {"uniform_share": 0.5}, RANGES)
    learn(curriculum, progress_in_a_corner)
    params = curriculum.sample(uniform_draws(curriculum, worlds=4000, seed=99))
    away = (params[:, 0] < 2.0) & (params[:, 1] < -0.1)
    assert away.mean() == pytest.approx(0.5 / 4, abs=0.03)


def test_alp_gmm_stays_uniform_while_nothing_changes():
    curriculum = make_curriculum(ALP_GMM, RANGES)
    learn(curriculum, easy)
    draws = uniform_draws(curriculum)
    assert np.allclose(curriculum.sample(draws), LOW + draws[:, 2:] * (HIGH - LOW))
    assert curriculum.statistics() == {"alp": 0.0, "components": 0.0}


def test_alp_gmm_measures_progress_against_the_nearest_earlier_episode():
    curriculum = make_curriculum(ALP_GMM, RANGES)
    curriculum.update(np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([4.0, 7.0]))
    assert curriculum.statistics()["alp"] == 0.0
    curriculum.update(np.array([[1.2, 0.0], [2.8, -0.1]]), np.array([3.5, 9.0]))
    assert curriculum.statistics()["alp"] == pytest.approx((0.5 + 2.0) / 4)


def test_alp_gmm_takes_as_many_gaussians_as_there_are_clusters():
    generator = np.random.default_rng(0)
    centres = np.array([[0.1, 0.1, 0.3], [0.9, 0.1, 0.6], [0.5, 0.9, 0.9]])
    samples = centres.repeat(300, 0) + 0.01 * generator.standard_normal((900, 3))
    mixture = fit(samples, AlpGmmConfig(max_components=6))
    order = np.argsort(mixture.mean[:, 0])
    assert np.allclose(mixture.mean[order], centres[[0, 2, 1], :2], atol=0.01)
    assert np.allclose(np.diff(mixture.cumulative, prepend=0.0)[order], [3 / 18, 9 / 18, 6 / 18], atol=0.01)


def test_a_mixture_has_the_moments_of_its_gaussians():
    covariance = np.array([[0.04, 0.03], [0.03, 0.09]])
    mean = np.array([[0.2, 0.7], [5.0, 5.0]])
    # Rounding may leave the sum of probabilities below the largest draw.
    mixture = Mixture(np.array([1.0, 1.0]) - 2.0**-52, mean, np.linalg.cholesky([covariance] * 2))
    normal = np.random.default_rng(0).standard_normal((10_000, 2))
    first = mixture.sample(np.full(10_000, 0.5), normal)
    assert np.allclose(first.mean(0), mean[0], atol=0.01)
    assert np.allclose(np.cov(first.T), covariance, atol=0.005)
    assert np.array_equal(mixture.sample(np.array([1 - 2.0**-53]), np.zeros((1, 2))), mean[1:])


def test_alp_gmm_keeps_no_more_history_than_it_was_told():
    curriculum = make_curriculum(ALP_GMM | {"history": 300}, RANGES)
    curriculum.update(np.tile([1.0, 0.0], (300, 1)), np.zeros(300))
    assert len(curriculum.state_dict()["history"]) == 300
    curriculum.update(np.tile([3.0, 0.0], (300, 1)), np.full(300, 5.0))
    curriculum.update(np.array([[1.0, 0.0]]), np.zeros(1))
    assert len(curriculum.state_dict()["history"]) == 300
    assert curriculum.state_dict()["history"][-1, -1] == 5.0


def test_alp_gmm_stays_in_the_box_for_the_smallest_and_largest_draws():
    curriculum = make_curriculum(ALP_GMM, RANGES)
    learn(curriculum, progress_in_a_corner)
    extremes = [0.0, 1 - 2.0**-53]
    stay_in_the_box(curriculum.sample(np.array(np.meshgrid(*[extremes] * 4)).reshape(4, -1).T))


def test_alp_gmm_does_not_depend_on_the_scale_of_scores_and_ranges():
    def concentrate(scale):
        ranges = [Range(name=r.name, low=r.low * scale, high=r.high * scale) for r in RANGES]
        curriculum = make_curriculum(ALP_GMM, ranges)
        learn(curriculum, lambda params, i: scale * progress_in_a_corner(params / scale, i), rounds=10)
        return curriculum.sample(uniform_draws(curriculum)) / scale

    assert np.allclose(concentrate(1.0), concentrate(2.0**20))


def test_alp_gmm_masters_twice_the_cells_of_uniform_sampling():
    toy = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "curriculum.py"))
    small = {"seed": 0, "cells": 8, "episodes": 4000, "full": 40}
    assert toy["mastered"]("alp_gmm", **small) >= 2 * toy["mastered"]("uniform", **small) > 0


@KINDS
def test_resuming_from_a_checkpoint_equals_going_on(config):
    straight = make_curriculum(config, RANGES)
    learn(straight, progress_in_a_corner, rounds=7, worlds=64)
    file = io.BytesIO()
    torch.save(straight.state_dict(), file)
    file.seek(0)
    resumed = make_curriculum(config, RANGES)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    draws = uniform_draws(straight, seed=50)
    assert np.array_equal(resumed.sample(draws), straight.sample(draws))
    for curriculum in (straight, resumed):
        learn(curriculum, progress_in_a_corner, rounds=9, worlds=64, seed=7)
    assert np.array_equal(resumed.sample(draws), straight.sample(draws))
    assert resumed.statistics() == straight.statistics()


def test_episodes_counted_before_a_checkpoint_count_after_it():
    before, after = make_curriculum(SUCCESS, RANGES), make_curriculum(SUCCESS, RANGES)
    start = np.tile([1.0, 0.0], (20, 1))
    before.update(start[:19], np.ones(19))
    after.load_state_dict(before.state_dict())
    after.update(start[:1], np.ones(1))
    assert ends(after)[0] == [1.0, 1.5]


def test_a_state_stays_what_it_was_while_its_curriculum_learns_on():
    for config in (SUCCESS, ALP_GMM):
        curriculum = make_curriculum(config, RANGES)
        learn(curriculum, progress_in_a_corner, rounds=7)
        state, draws = curriculum.state_dict(), uniform_draws(curriculum)
        before = curriculum.sample(draws)
        learn(curriculum, easy, rounds=7)
        assert not np.array_equal(curriculum.sample(draws), before)
        curriculum.load_state_dict(state)
        assert np.array_equal(curriculum.sample(draws), before)


@KINDS
def test_permuting_worlds_permutes_samples_and_changes_nothing_that_is_learned(config):
    order = np.random.default_rng(1).permutation(300)
    one, other = make_curriculum(config, RANGES), make_curriculum(config, RANGES)
    for i in range(6):
        draws = uniform_draws(one, worlds=300, seed=i)
        params = one.sample(draws)
        assert np.array_equal(other.sample(draws[order]), params[order])
        assert np.array_equal(one.sample(draws[:10]), params[:10])
        score = progress_in_a_corner(params, i)
        one.update(params, score)
        other.update(params[order], score[order])


def test_the_number_of_threads_does_not_show_in_a_fit():
    samples = np.random.default_rng(0).random((20_000, 4)) ** [1, 1, 1, 4]
    config = AlpGmmConfig(min_components=10, max_components=10)
    means = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            means.append(fit(samples, config).mean)
    assert np.array_equal(*means)


@KINDS
def test_no_episode_is_an_update_that_changes_nothing(config):
    one, other = make_curriculum(config, RANGES), make_curriculum(config, RANGES)
    for curriculum in (one, other):
        learn(curriculum, progress_in_a_corner, rounds=5)
    one.update(np.empty((0, 2)), np.empty(0))
    draws = uniform_draws(one)
    assert np.array_equal(one.sample(draws), other.sample(draws))
    assert one.statistics() == other.statistics()


@pytest.mark.parametrize("config", [SUCCESS, ALP_GMM], ids=["success", "alp_gmm"])
def test_scores_that_are_not_finite_are_refused(config):
    curriculum = make_curriculum(config, RANGES)
    with pytest.raises(AndanteError, match="finite scores, found nan"):
        curriculum.update(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, np.nan]))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "magic"}, "curriculum: Invalid value 'magic'"),
        ({"kind": "uniform", "speed": 1}, "unknown field `speed`"),
        ({"kind": "alp_gmm", "windw": 100}, "unknown field `windw`"),
        ({"kind": "alp_gmm", "window": "long"}, "Expected `int`, got `str` - at `$.window`"),
        ({"kind": "alp_gmm", "window": 9}, "window must be at least max_components, 10, found 9"),
        ({"kind": "alp_gmm", "fit_every": 5}, "fit_every must be at least max_components, 10, found 5"),
        ({"kind": "alp_gmm", "history": 100}, "window must be at most history, 100, found 250"),
        ({"kind": "alp_gmm", "min_components": 0}, "min_components must be at least 1, found 0"),
        (
            {"kind": "alp_gmm", "min_components": 11},
            "max_components must be at least min_components, 11, found 10",
        ),
        ({"kind": "alp_gmm", "uniform_share": 1.5}, "uniform_share must be from 0 to 1, found 1.5"),
        ({"kind": "alp_gmm", "uniform_share": float("nan")}, "uniform_share must be from 0 to 1, found nan"),
        ({"kind": "success"}, "missing required field `start`"),
        (SUCCESS | {"grow_above": 0.3}, "shrink_below 0.4, grow_above 0.3"),
        (SUCCESS | {"shrink_below": float("nan")}, "shrink_below nan, grow_above 0.8"),
        (SUCCESS | {"success_score": float("inf")}, "success_score must be finite, found inf"),
        (SUCCESS | {"band": 0.0}, "band must be above 0 and at most 1, found 0.0"),
        (SUCCESS | {"steps": 0}, "steps must be at least 1, found 0"),
        (SUCCESS | {"episodes": 0}, "episodes must be at least 1, found 0"),
        (
            SUCCESS | {"start": {"mass": 1.0}},
            "start must name every range once, ['mass', 'slope'], found ['mass']",
        ),
        (SUCCESS | {"start": {"mass": 5.0, "slope": 0.0}}, "'mass' must be from 1.0 to 3.0, found 5.0"),
        (
            SUCCESS | {"start": {"mass": float("nan"), "slope": 0.0}},
            "'mass' must be from 1.0 to 3.0, found nan",
        ),
    ],
)
def test_a_bad_config_gets_one_clear_line(config, message):
    with pytest.raises(AndanteError) as error:
        make_curriculum(config, RANGES)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_range_gets_one_clear_line():
    with pytest.raises(AndanteError, match=r"range 'mass' must have low <= high, found 2.0 > 1.0"):
        Range(name="mass", low=2.0, high=1.0)
    with pytest.raises(AndanteError, match=r"range 'mass' must be finite, found 0.0 to inf"):
        Range(name="mass", low=0.0, high=float("inf"))
    with pytest.raises(AndanteError, match="each with its own name, found \\['mass', 'mass'\\]"):
        make_curriculum(UNIFORM, [RANGES[0], RANGES[0]])
    with pytest.raises(AndanteError, match="at least one range"):
        make_curriculum(UNIFORM, [])


def test_configs_are_read_without_torch():
    code = "import sys, andante.sim.curriculum; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""`andante play`: a plot and a video of any agent, or one clear error."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from andante.runtime.cli import main
from andante.sim.spec import get_spec
from andante.train.agents import Random, Trained, Zero, make_agent
from andante.train.checkpoint import load_run
from andante.train.episode import play_episode
from andante.train.evaluate import evaluate
from andante.train.plot import plot_episode

TASK = "pendulum-swingup-blind"


def play(*words: str, **environment: str) -> subprocess.CompletedProcess:
    """In a process of its own: how MuJoCo renders is chosen when it is imported."""
    command = [str(Path(sys.executable).with_name("andante")), "play", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}, check=False
    )


@pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="rendering needs libEGL")
def test_writes_a_video_in_real_time_and_a_plot(tmp_path):
    result = play("cartpole-swingup-blind", "--agent", "random", "--output", str(tmp_path / "a.mp4"))
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.mp4", "a.png"}
    ticks = int(result.stdout.split(" ticks")[0].split()[-1])
    reader = imageio.get_reader(tmp_path / "a.mp4")
    frames = list(reader.iter_data())
    assert len(frames) / reader.get_meta_data()["fps"] == pytest.approx(ticks * 0.02, abs=0.1)
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).max() > 50


def test_without_rendering_says_what_to_install(tmp_path):
    result = play(TASK, "--output", str(tmp_path / "a.mp4"), MUJOCO_GL="disabled")
    assert result.returncode == 1
    assert "MUJOCO_GL=disabled failed" in result.stderr and "--plot-only" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_zero_and_random_agents_do_what_they_are_called():
    spec = get_spec(TASK)
    zero, noise = (play_episode(agent, TASK, seed=0) for agent in (Zero(spec), Random(spec, 0)))
    assert not zero.actions.any()
    assert len(zero.rewards) == spec.episode_ticks
    term = spec.actions[0]
    assert term.low[0] <= noise.actions.min() < 0.9 * term.low[0]
    assert 0.9 * term.high[0] < noise.actions.max() <= term.high[0]
    assert noise.decided.all()


def test_a_run_plays_as_it_was_evaluated(trained_run):
    run = load_run(trained_run)
    episode = play_episode(Trained(run.policy), TASK, seed=11)
    expected = evaluate(run.policy, TASK, 1, seed=11).returns.item()
    assert episode.rewards.sum() == pytest.approx(expected, rel=1e-3)
    assert np.flatnonzero(episode.decided).tolist() == list(range(0, 500, run.policy.execution_horizon))


def test_a_policy_file_plays_as_its_run(trained_run, trained_policy):
    spec = get_spec(TASK)
    run, file = (
        play_episode(make_agent(str(path), spec, 0), TASK, 3) for path in (trained_run, trained_policy)
    )
    np.testing.assert_allclose(file.actions[:50], run.actions[:50], atol=1e-4)
    assert file.rewards.sum() == pytest.approx(run.rewards.sum(), rel=0.02)


def test_plot_shows_sources_actions_and_rewards(tmp_path):
    episode = play_episode(Zero(get_spec(TASK)), TASK, seed=0)
    plot_episode(episode, "title", tmp_path / "plot.png")
    image = imageio.imread(tmp_path / "plot.png")
    assert image.shape[0] > 500 and len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no task 'nothing'"),
        (
            [TASK, "--agent", "nothing"],
            "no agent 'nothing': expected zero, random, a run folder or a policy file",
        ),
        ([TASK, "--seed", "-1"], "seed must be 0 to 2^62 - 1, found -1"),
        ([TASK, "--agent", "random", "--seed", "99999999999999999999"], "seed must be 0 to 2^62 - 1"),
        ([TASK, "--output", "a.xyz"], "a.xyz: expected a name ending in .mp4"),
        ([TASK, "--output", "/nowhere/a.mp4"], "/nowhere/a.mp4: no folder /nowhere"),
    ],
)
def test_a_wrong_word_is_one_clear_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", *words, "--plot-only"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_on_another_task_is_refused(trained_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", "cartpole-swingup-blind", "--agent", str(trained_run), "--plot-only"]) == 1
    assert f"trained on '{TASK}', expected 'cartpole-swingup-blind'" in capsys.readouterr().err

"""`andante play`: a plot and a video of any agent, or one clear error."""

from __future__ import annotations

import copy
import ctypes.util
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from andante.cli import main
from andante.sim import make
from andante.sim.spec import TASKS, get_spec
from andante.sim.spec.randomization import Choice, LogUniform, Randomization
from andante.train.agents import Random, Trained, Zero, make_agent
from andante.train.checkpoint import Checkpoint, load_run
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.divergence import Divergence
from andante.train.episode import Player, play_episode
from andante.train.evaluate import evaluate
from andante.train.plot import plot_episode
from andante.train.ppo import PPO
from andante.train.recipes import get_recipe
from andante.train.replay import replay_divergence

TASK = "pendulum-swingup-blind"


def play(*words: str, **environment: str) -> subprocess.CompletedProcess:
    """In a process of its own: how MuJoCo renders is chosen when it is imported."""
    command = [str(Path(sys.executable).with_name("andante")), "play", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}, check=False
    )


needs_egl = pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="rendering needs libEGL")


@needs_egl
def test_writes_a_video_in_real_time_and_a_plot(tmp_path):
    result = play("cartpole-swingup-blind", "--agent", "random", "--output", str(tmp_path / "a.mp4"))
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.mp4", "a.png"}
    ticks = int(result.stdout.split(" ticks")[0].split()[-1])
    reader = imageio.get_reader(tmp_path / "a.mp4")
    frames = list(reader.iter_data())
    assert len(frames) / reader.get_meta_data()["fps"] == pytest.approx(ticks * 0.02, abs=0.1)
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).max() > 50


def test_a_plot_without_space_is_one_line_and_leaves_nothing(tmp_path):
    code = "import sys; from andante.cli import main; sys.exit(main(sys.argv[1:]))"
    shell = ["bash", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$0" -c "$@"', sys.executable, code]
    words = ["play", TASK, "--seconds", "0.5", "--plot-only", "--output", str(tmp_path / "a.mp4")]
    result = subprocess.run([*shell, *words], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    assert result.stderr == f"andante: {tmp_path}/a.png: not written: File too large\n"
    assert not list(tmp_path.iterdir())


NO_SPACE = """
import resource
from pathlib import Path
from andante.train.video import prepare_rendering, write_video
prepare_rendering()
from andante.runtime.errors import AndanteError
from andante.sim.spec import get_spec
from andante.train.agents import Random
from andante.train.episode import play_episode
episode = play_episode(Random(get_spec("pendulum-swingup-blind"), 0), 0, 25)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    write_video(episode, Path("a.mp4"))
except AndanteError as error:
    print(error)
"""


@needs_egl
def test_a_video_without_space_is_one_line_and_leaves_nothing(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", NO_SPACE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (
        result.stdout.startswith("a.mp4: not written: the encoder gave up") and result.stdout.count("\n") == 1
    )
    assert not list(tmp_path.iterdir())


def test_without_rendering_says_what_to_install(tmp_path):
    result = play(TASK, "--output", str(tmp_path / "a.mp4"), MUJOCO_GL="disabled")
    assert result.returncode == 1
    assert "MUJOCO_GL=disabled failed" in result.stderr and "--plot-only" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_zero_and_random_agents_do_what_they_are_called():
    spec = get_spec(TASK)
    zero, noise = (play_episode(agent, seed=0) for agent in (Zero(spec), Random(spec, 0)))
    assert not zero.actions.any()
    assert len(zero.rewards) == spec.episode_ticks
    term = spec.actions[0]
    assert term.low[0] <= noise.actions.min() < 0.9 * term.low[0]
    assert 0.9 * term.high[0] < noise.actions.max() <= term.high[0]
    assert noise.decided.all()


def test_a_run_plays_as_it_was_evaluated(trained_run):
    run = load_run(trained_run)
    episode = play_episode(Trained(run.policy), seed=11)
    expected = evaluate(run.policy, TASK, 1, seed=11).returns.item()
    assert episode.rewards.sum() == pytest.approx(expected, rel=1e-3)
    assert np.flatnonzero(episode.decided).tolist() == list(range(0, 500, run.policy.execution_horizon))


def test_a_policy_file_plays_as_its_run(trained_run, trained_policy):
    spec = get_spec(TASK)
    run, file = (play_episode(make_agent(str(path), spec, 0), 3) for path in (trained_run, trained_policy))
    np.testing.assert_allclose(file.actions[:50], run.actions[:50], atol=1e-4)
    assert file.rewards.sum() == pytest.approx(run.rewards.sum(), rel=0.02)


@pytest.mark.parametrize("task", [TASK, "quadruped-velocity", "popgym/MineSweeperEasy-v0", "Ant-v5"])
def test_plot_has_a_panel_for_each_source_action_term_and_the_reward(task, tmp_path):
    spec = get_spec(task)
    episode = play_episode(Random(spec, 0), seed=0, ticks=30)
    plot_episode(episode, "title", tmp_path / "plot.png")
    image = imageio.imread(tmp_path / "plot.png")[..., :3].astype(int)
    dark = (image.max(-1) < 60).mean(1) > 0.5  # the frames' long sides
    frames = np.diff(dark.astype(int), prepend=0) == 1
    panels = len(spec.sources) + len(spec.actions) + 1
    assert frames.sum() == 2 * panels
    tops, bottoms = frames.nonzero()[0].reshape(-1, 2).T
    assert (bottoms - tops).min() > 80
    colourful = (image.max(-1) - image.min(-1)) > 40
    assert all(colourful[top:bottom].any() for top, bottom in zip(tops, bottoms, strict=True))


PLAY_ALL = """
import sys
from andante.cli import main
for number, task in enumerate(sys.argv[1:]):
    if main(["play", task, "--agent", "random", "--seconds", "0.2", "--output", f"{number}.mp4"]):
        sys.exit(f"failed: {task}")
"""


@needs_egl
def test_every_task_plays_and_one_without_physics_has_a_plot_alone(tmp_path):
    seen = [*TASKS, "Hopper-v5"]
    blind = ["tmaze/3", "repeat-previous", "popgym/AutoencodeEasy-v0", "gym/Pendulum-v1"]
    # In a process of its own: how MuJoCo renders is chosen when it is imported.
    command = [sys.executable, "-c", PLAY_ALL, *seen, *blind]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    videos = [f"{number}.mp4" for number in range(len(seen))]
    plots = [f"{number}.png" for number in range(len(seen + blind))]
    assert {path.name for path in tmp_path.iterdir()} == {*videos, *plots}
    for video in videos:
        frame = next(iter(imageio.get_reader(tmp_path / video).iter_data()))
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 100


def test_seconds_cut_an_episode(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", TASK, "--plot-only", "--seconds", "0.5"]) == 0
    assert "in 25 ticks" in capsys.readouterr().out


def test_the_demonstrator_brings_the_puck_to_its_target():
    agent = make_agent("demonstrator", get_spec("arm-push"), 0)
    assert play_episode(agent, seed=0).rewards.sum() > 200


class Chunks:
    """Decides on one chunk after the other, and notes which decisions were the first of an episode."""

    def __init__(self, chunks: torch.Tensor) -> None:
        self._chunks = iter(chunks)
        self.first: list[bool] = []

    def decide(self, sources: dict[str, torch.Tensor], first: bool) -> torch.Tensor:
        self.first.append(first)
        return next(self._chunks)


def test_an_episode_that_ends_in_mid_chunk_drops_the_rest():
    chunks = torch.rand(6, 1, 5, 1, generator=torch.Generator().manual_seed(0)) - 0.5
    in_one_call, tick_by_tick = make(TASK, 1, seed=4), make(TASK, 1, seed=4)
    in_one_call.reset()
    agent = Chunks(chunks)
    player = Player(agent, tick_by_tick)
    for env in (in_one_call, tick_by_tick):
        state = env.state_dict()
        state["tick"] += env.spec.episode_ticks - 12
        env.load_state_dict(state)
    for chunk in chunks:
        outcome = in_one_call.step(chunk)
    ticks = [player.tick() for _ in range(12 + 3 * 5)]
    assert [tick.done for tick in ticks].index(True) == 11
    assert agent.first == [True, False, False, True, False, False]
    assert torch.equal(in_one_call.state_dict()["state"], tick_by_tick.state_dict()["state"])
    assert ticks[-1].reward == outcome.reward[0, -1]


def test_a_run_forgets_between_episodes(trained_run):
    agent = Trained(load_run(trained_run).policy)
    sources = make(TASK, 1, seed=0).reset().sources
    decisions = [agent.decide(sources, first) for first in (True, False, True)]
    assert torch.equal(decisions[0], decisions[2]) and not torch.equal(decisions[0], decisions[1])


TRAIN = (
    *("train", TASK, "--num-worlds", "16", "--hidden-size", "16", "--chunk-size", "4"),
    *("--ppo.decisions", "8", "--ppo.minibatches", "2", "--ppo.critic-size", "16"),
)
TICKS_PER_ITERATION = 16 * 8 * 4


@pytest.fixture(scope="module")
def diverged_runs(tmp_path_factory) -> tuple[Path, Path]:
    """A run in which world 3 gets out of all bounds, and the same where a dump of another one was there."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for folder in folders:
        assert main([*TRAIN, "--run-dir", str(folder), "--ticks", str(TICKS_PER_ITERATION)]) == 0
        checkpoint = Checkpoint.read(folder / "checkpoint.pt")
        state = checkpoint.trainer["scheduler"]["env"]["state"]
        # Angle and speed: 1.8e4 rad a tick, until at the 12th the angle passes 1e6.
        state[3, 1], state[3, 2] = 8e5, 9e5
        checkpoint.write(folder / "checkpoint.pt")
        (folder / "result.json").unlink()
    (folders[1] / "diverged.pt").touch()
    for folder in folders:
        assert (
            main([*TRAIN, "--run-dir", str(folder), "--ticks", str(3 * TICKS_PER_ITERATION), "--resume"]) == 0
        )
    return folders


def test_a_divergence_in_training_leaves_a_dump_that_shows_it(diverged_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dump = diverged_runs[0] / "diverged.pt"
    assert main(["play", TASK, "--from-dump", str(dump), "--plot-only"]) == 0
    said = capsys.readouterr().out
    assert f"physics of {TASK} diverged in world 3, episode 0, after the decision of tick" in said
    assert Path("play.png").is_file()
    divergence = Divergence.read(dump)
    episode = replay_divergence(dump, divergence)
    assert episode.states[0, 1:] == pytest.approx([8e5, 9e5])
    assert len(episode.rewards) == 12 and 9.8e5 < episode.states[-1, 1] < 1e6
    np.testing.assert_array_equal(episode.actions, divergence.actions.flatten(0, 1))


def test_a_dump_holds_the_episode_from_its_start_with_all_that_was_randomised(tmp_path, monkeypatch):
    delayed = {"*": Choice(values=(0.0, 3.0))}
    config = TrainConfig(
        task=TASK,
        ticks=1,
        num_worlds=16,
        policy=PolicyConfig(hidden_size=16, chunk_size=4),
        ppo=PPOConfig(decisions=32, minibatches=2, critic_size=16),
        randomization=Randomization(
            mass={"*": LogUniform(low=0.5, high=2.0)}, noise={"*": 0.1}, observation_delay=delayed
        ),
    )
    trainer = PPO.from_config(config)
    state = trainer.env.state_dict()
    state["tick"].fill_(trainer.env.spec.episode_ticks - 6)
    state["state"][:, 2] = 0.0
    trainer.env.load_state_dict(state)
    start = copy.deepcopy(trainer.state_dict())
    # As if this were out of all bounds, rad and rad/s: where none gets before its time is up.
    monkeypatch.setattr("andante.sim.env.DIVERGED", 3.8)
    trainer.iterate()
    Divergence.find(trainer, config, start).write(tmp_path / "diverged.pt")
    divergence = Divergence.read(tmp_path / "diverged.pt")
    assert divergence.episode == 1 and divergence.before["tick"].tolist() == [0]
    episode = replay_divergence("", divergence)
    assert 0 <= len(episode.rewards) - 1 - divergence.tick < 4
    assert np.abs(episode.states[:, 1:3]).max() < 3.8
    first = trainer.rollout.reset[:, divergence.world].nonzero()[1].item()
    for name, recorded in trainer.rollout.sources.items():
        seen = episode.sources[name][::4]
        expected = recorded[first : first + len(seen), divergence.world].numpy()
        np.testing.assert_array_equal(seen, expected)


def test_looking_for_a_divergence_does_not_change_the_training(diverged_runs):
    first, second = (Checkpoint.read(folder / "checkpoint.pt").trainer for folder in diverged_runs)
    for one, other in zip(first["policy"].values(), second["policy"].values(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(first["scheduler"]["env"]["state"], second["scheduler"]["env"]["state"])
    assert (diverged_runs[1] / "diverged.pt").stat().st_size == 0


def test_a_dump_of_another_task_or_without_a_divergence_is_refused(
    diverged_runs, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    dump = diverged_runs[0] / "diverged.pt"
    assert main(["play", "cartpole-swingup-blind", "--from-dump", str(dump), "--plot-only"]) == 1
    assert f"dump of a run on '{TASK}', expected 'cartpole-swingup-blind'" in capsys.readouterr().err
    divergence = Divergence.read(dump)
    dataclasses.replace(divergence, actions=divergence.actions[:1]).write(Path("cut.pt"))
    assert main(["play", TASK, "--from-dump", "cut.pt", "--plot-only"]) == 1
    assert "do not make physics diverge again" in capsys.readouterr().err
    assert not Path("play.png").exists()


def test_a_task_without_a_recipe_is_trained_with_defaults():
    assert get_recipe("tmaze/7") == TrainConfig(task="tmaze/7", ticks=3_000_000)
    assert get_recipe("popgym/AutoencodeEasy-v0").num_worlds == 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no task 'nothing'"),
        (
            [TASK, "--agent", "nothing"],
            "no agent 'nothing': expected zero, random, demonstrator, a run folder or a policy file",
        ),
        (
            [TASK, "--agent", "demonstrator"],
            f"no demonstrator of '{TASK}': there is one of arm-push",
        ),
        ([TASK, "--seconds", "0"], "seconds must be positive, found 0.0"),
        ([TASK, "--live", "--host", "no.such.host.invalid"], "cannot listen at host 'no.such.host.invalid'"),
        ([TASK, "--live", "--port", "65536"], "port must be 0 to 65535, found 65536"),
        ([TASK, "--live", "--from-dump", "dump.pt"], "--live and --from-dump exclude each other"),
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


def test_live_without_its_extra_says_what_to_install():
    script = f"""
import sys
sys.modules["viser"] = None
from andante.cli import main
sys.exit(main(["play", "{TASK}", "--live"]))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    hint = "--live needs viser, which is not installed: in andante's folder: pip install '.[view]'"
    assert result.stderr == f"andante: {hint}\n"


def test_a_run_on_another_task_is_refused(trained_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", "cartpole-swingup-blind", "--agent", str(trained_run), "--plot-only"]) == 1
    assert f"trained on '{TASK}', expected 'cartpole-swingup-blind'" in capsys.readouterr().err

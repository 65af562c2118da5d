"""Runs in randomised worlds, and decisions that are late, unequal or lost, against one world at a time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from andante.cli import main
from andante.export.observations import observe
from andante.runtime.chunk import ChunkBuffer
from andante.runtime.contract import Source
from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.env import Env
from andante.sim.spec.randomization import Choice, Randomization, Uniform
from andante.sim.tasks import get_task
from andante.train import Policy
from andante.train.agents import Trained, trained_with
from andante.train.checkpoint import Checkpoint, load_run
from andante.train.episode import Episode, make_player, play_episode
from andante.train.evaluate import evaluate
from andante.train.timed import TimedScheduler

TASK, WORLDS = "pendulum-swingup-blind", 12


def make_policy(spec, chunk_size: int, horizon: int | None = None) -> Policy:
    torch.manual_seed(0)
    policy = Policy.for_env(spec, hidden_size=16, chunk_size=chunk_size, execution_horizon=horizon)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(200.0)  # untrained ones hardly move
    return policy


# Decisions


@pytest.mark.parametrize("horizon", [5, 3])
def test_decisions_on_time_are_those_of_whole_chunks(horizon):
    policy = make_policy(make(TASK, 1).spec, 5, horizon)
    on_time = evaluate(policy, TASK, 4, seed=5).returns
    one_by_one = evaluate(policy, TASK, 4, seed=5, randomization=Randomization(inference_delay=0)).returns
    assert one_by_one.tolist() == pytest.approx(on_time.tolist(), rel=1e-4)


class OneWorld:
    """One world of a scheduler, with the buffer that robots use."""

    def __init__(self, scheduler: TimedScheduler, world: int):
        self.env, self.policy, self.world = scheduler.env, scheduler.policy, world
        self.timing = self.env.timing
        self.seen: list[torch.Tensor] = []
        self.begin()

    def begin(self) -> None:
        self.delay, self.horizon = (
            int(values[self.world]) for values in (self.timing.inference_delay, self.timing.execution_horizon)
        )
        self.chunks = ChunkBuffer(self.policy.chunk_size, 1, self.policy.chunk_size)
        self.h, self.tick, self.blocked = self.policy.initial_state(1), 0, 0
        self.action = np.array(self.env.spec.action_middle, np.float32)

    def act(self, sources: dict[str, torch.Tensor], dropped: bool, starved: int) -> np.ndarray:
        """The action of this tick, from what is measured before it."""
        due = self.tick % self.horizon == 0
        if due:
            self.blocked = max(self.blocked, starved)
        uncovered = self.chunks.action_at(self.tick) is None and self.delay == 0
        if (due or uncovered) and not dropped and not self.blocked:
            row = torch.zeros(1, 4, 1)
            for ahead in range(min(4, self.delay)):
                action = self.chunks.action_at(self.tick + ahead)
                row[0, ahead] = 0.0 if action is None else float(action[0])
            self.seen.append(row)
            with torch.no_grad():
                mean, h = self.policy.decide({**sources, "committed": row}, self.h)
            self.h = h if due else self.h
            chunk = self.policy.decode(mean)[0].numpy()
            # Nothing comes in between: the answer may as well be put in at once, for later.
            self.chunks.put(chunk, self.tick, self.chunks.epoch, self.tick, self.delay)
        found = self.chunks.action_at(self.tick)
        self.action = self.action if found is None else found.copy()
        self.tick += 1
        self.blocked = max(self.blocked - 1, 0)
        return self.action


def test_late_unequal_and_lost_decisions_equal_one_world_at_a_time(monkeypatch):
    task = get_task("cartpole-swingup-blind")
    committed = Source(
        name="committed", kind="committed_actions", joints=task.spec.action_joints, unit="", history=4
    )
    spec = dataclasses.replace(task.spec, sources=(*task.spec.sources, committed), episode_ticks=37)
    randomization = Randomization(
        inference_delay=Uniform(0, 2),
        execution_horizon=Choice((2, 3, 4)),
        dropped_decisions=Choice((0.0, 0.3)),
        starvation=Choice((0.0, 0.1)),
        starvation_ticks=Uniform(3, 9),
        noise={"*": 0.05},
    )
    env = Env(dataclasses.replace(task, spec=spec), WORLDS, seed=3, threads=1, randomization=randomization)
    policy = make_policy(spec, 6)
    scheduler = TimedScheduler(env, policy)
    told: list[torch.Tensor] = []
    decide = policy.decide

    def listen(sources, h):
        told.extend(sources["committed"].clone().unbind(0))
        return decide(sources, h)

    played: list[torch.Tensor] = []
    step = env.step

    def watch(actions):
        played.append(actions[:, 0].clone())
        return step(actions)

    monkeypatch.setattr(env, "step", watch)
    singles = [OneWorld(scheduler, world) for world in range(WORLDS)]
    for _ in range(90):
        observation, fates = scheduler.observation, env.decision_fates()
        expected = [
            single.act(
                {name: value[i : i + 1] for name, value in observation.sources.items()},
                bool(fates.dropped[i]),
                int(fates.starved[i]),
            )
            for i, single in enumerate(singles)
        ]
        monkeypatch.setattr(policy, "decide", listen)
        outcome = scheduler.advance().outcome
        monkeypatch.setattr(policy, "decide", decide)
        assert played[-1].numpy() == pytest.approx(np.stack(expected), abs=1e-4)
        for single in singles:
            if outcome.done[single.world]:
                single.begin()
    assert env.state_dict()["episode"].min() >= 2
    seen = torch.cat([row for single in singles for row in single.seen])
    assert len(seen) == len(told)
    assert torch.stack(told).sum().item() == pytest.approx(seen.sum().item(), abs=1e-3)
    assert (seen != 0).any(0).flatten().tolist() == [True, True, False, False]


def test_a_reset_leaves_nothing_of_the_episode_before():
    task = get_task(TASK)
    task = dataclasses.replace(task, spec=dataclasses.replace(task.spec, episode_ticks=7))
    randomization = Randomization(inference_delay=2, starvation=0.5, starvation_ticks=20)
    env = Env(task, WORLDS, seed=3, threads=1, randomization=randomization)
    scheduler = TimedScheduler(env, make_policy(task.spec, 6, 4))
    for _ in range(7):
        scheduler.advance()
    assert env.state_dict()["tick"].tolist() == [0] * WORLDS
    fresh = TimedScheduler(env, scheduler.policy)
    for name in ("h", "reset", "_held", "_phase", "_starved"):
        assert torch.equal(getattr(scheduler, name), getattr(fresh, name)), name
    assert torch.equal(scheduler._plan.planned, fresh._plan.planned)


def test_decisions_that_are_not_on_time_are_not_for_recording():
    randomization = Randomization(inference_delay=1)
    env = make(TASK, 8, randomization=randomization)
    with pytest.raises(AndanteError, match="inference_delay: only decisions on time"):
        evaluate(make_policy(env.spec, 5, 4), TASK, 2, seed=0, record=True, randomization=randomization)


# Runs


RUN = (
    *("--ticks", "1280", "--num-worlds", "8", "--evaluations", "1", "--hidden-size", "8"),
    *("--ppo.decisions", "8", "--ppo.minibatches", "2"),
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "worlds.yaml").write_text(
        "damping: {hinge: {kind: uniform, low: 0.5, high: 2}}\n"
        "curriculum:\n"
        "  ranges: [damping.hinge]\n"
        "  teacher: {kind: success, start: {damping.hinge: 1}, episodes: 2}\n"
    )
    words = ["train", TASK, *RUN, "--run-dir", str(folder / "run"), "--observation-delay", "3"]
    assert main([*words, "--randomization", str(folder / "worlds.yaml")]) == 0
    return folder / "run"


def test_a_run_keeps_what_it_was_trained_with(run_dir):
    expected = Randomization(damping={"hinge": Uniform(0.5, 2.0)}, observation_delay={"*": 3.0})
    run = load_run(run_dir)
    assert run.config.randomization.whole == expected == trained_with(str(run_dir))
    assert run.config.randomization.curriculum.ranges == ("damping.hinge",)
    saved = json.loads((run_dir / "config.json").read_text())["randomization"]
    assert saved["observation_delay"] == {"*": 3}
    assert "lessons" in Checkpoint.read(run_dir / "checkpoint.pt").trainer["scheduler"]["env"]["randomizer"]
    assert trained_with("zero") == Randomization()


def test_evaluation_playing_and_export_meet_the_worlds_of_the_run(run_dir):
    run = load_run(run_dir)
    worlds = run.config.randomization.whole
    found = evaluate(run.policy, TASK, run.result.episodes, run.result.seed, randomization=worlds).returns
    assert run.result.returned == pytest.approx(float(found.mean()))
    nominal = evaluate(run.policy, TASK, run.result.episodes, run.result.seed).returns
    assert not torch.allclose(found, nominal)
    seen = observe(run.policy, 30, 0, 10, worlds).sources["joint_position"]
    assert np.array_equal(seen[0], observe(run.policy, 30, 0, 10).sources["joint_position"][0])
    assert not np.array_equal(seen[:10], observe(run.policy, 30, 0, 10).sources["joint_position"][:10])


def test_play_takes_the_worlds_of_the_run_or_those_it_is_told(run_dir, tmp_path, monkeypatch):
    given = []

    def play(agent, seed, ticks, randomization):
        given.append(randomization)
        return play_episode(agent, seed, ticks, randomization)

    monkeypatch.setattr("andante.train.episode.play_episode", play)
    words = ["play", TASK, "--plot-only", "--seconds", "0.2", "--output", str(tmp_path / "a.mp4")]
    assert main([*words, "--agent", str(run_dir)]) == 0
    assert main([*words, "--agent", str(run_dir), "--observation-delay", "1"]) == 0
    assert main(words) == 0
    assert [each.observation_delay for each in given] == [{"*": 3.0}, {"*": 1}, {}]


LATE = Randomization(inference_delay=1, execution_horizon=Choice((2, 3)), dropped_decisions=0.2)


def test_late_and_lost_decisions_are_played_as_they_are_evaluated():
    policy = make_policy(make(TASK, 1).spec, 5)
    played = play_episode(Trained(policy), seed=11, randomization=LATE)
    expected = evaluate(policy, TASK, 1, seed=11, randomization=LATE).returns.item()
    assert played.rewards.sum() == pytest.approx(expected, rel=1e-5)
    assert evaluate(policy, TASK, 1, seed=11).returns.item() != pytest.approx(expected, rel=1e-2)
    decided = np.flatnonzero(played.decided)
    grid = np.gcd.reduce(decided)
    assert grid in (2, 3) and 0.7 < len(decided) / len(played.rewards[::grid]) < 0.9
    env = make(policy.spec, 1, seed=11, randomization=LATE)
    player = make_player(Trained(policy), env)
    ticks = [player.tick() for _ in range(len(played.rewards) + 5)]
    assert [tick.done for tick in ticks].index(True) == len(played.rewards) - 1
    assert np.array_equal(Episode.of(env.spec, ticks[:-5]).actions, played.actions)
    player.restart()
    assert np.array_equal(player.tick().action, np.array(env.spec.action_middle, np.float32))


def test_a_decision_beside_the_grid_is_marked():
    policy, lossy = make_policy(make(TASK, 1).spec, 4), Randomization(dropped_decisions=0.5)
    played = play_episode(Trained(policy), seed=3, randomization=lossy)
    assert {tick % 4 for tick in np.flatnonzero(played.decided)} == {0, 1, 2, 3}
    # Where one was lost, the action is held; the next that comes through changes it.
    moved = np.flatnonzero(np.diff(played.actions[:, 0])) + 1
    assert 4 * played.decided.sum() > len(moved) > 2 * played.decided.sum()


def test_play_shows_late_decisions_of_a_run_and_says_what_others_leave_out(
    run_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("late.yaml").write_text("{inference_delay: 1, execution_horizon: 3}")
    words = ["play", TASK, "--plot-only", "--randomization", "late.yaml"]
    assert main([*words, "--agent", str(run_dir)]) == 0
    late = capsys.readouterr().out
    assert "on time" not in late and "return" in late
    assert main(["play", TASK, "--plot-only", "--agent", str(run_dir), "--observation-delay", "0"]) == 0
    assert late != capsys.readouterr().out
    assert main(words) == 0
    assert "zero decides on time: inference_delay, execution_horizon left out" in capsys.readouterr().out
    Path("late.yaml").write_text("inference_delay: 4")
    assert main([*words, "--agent", str(run_dir)]) == 1
    assert capsys.readouterr().err.startswith("andante: impossible horizon: inference_delay d up to 4")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--observation-delay", "2"],
            "randomization.observation_delay is {'*': 3.0} in this run, found {'*': 2}",
        ),
        (["--observation-delay", "-1"], "observation_delay.* must be from 0 to 1000, found -1 to -1"),
        (["--randomization", "nowhere.yaml"], "nowhere.yaml: "),
    ],
)
def test_a_run_continues_in_the_worlds_it_began_in(run_dir, words, message, capsys):
    assert main(["train", TASK, "--run-dir", str(run_dir), "--resume", *words]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

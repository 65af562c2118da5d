"""Parallel worlds: ticks and calls, ends and restarts, exact continuation."""

from __future__ import annotations

import dataclasses

import mujoco
import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.env import DIVERGED, Env
from andante.sim.randomness import Draws
from andante.sim.spec.start import Start
from andante.sim.task import Ticks
from andante.sim.tasks import get_task

PENDULUM, CARTPOLE = "pendulum-swingup-blind", "cartpole-swingup-blind"
FIELDS = ("reward", "terminated", "truncated", "valid", "critic", "done")


def generator(seed=0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_actions(env: Env, n: int, random: torch.Generator, scale: float = 1.5) -> torch.Tensor:
    """Beyond the limits at times."""
    high = torch.tensor(env.spec.actions[0].high)
    return scale * high * torch.randn(env.num_worlds, n, env.spec.action_size, generator=random)


def short(name: str, episode_ticks: int):
    task = get_task(name)
    return dataclasses.replace(task, spec=dataclasses.replace(task.spec, episode_ticks=episode_ticks))


def put(env: Env, **columns) -> None:
    """Overwrite columns of the worlds' states [time | qpos | qvel]."""
    saved = env.state_dict()
    for column, values in columns.items():
        saved["state"][:, int(column.removeprefix("column_"))] = torch.as_tensor(values, dtype=torch.float64)
    env.load_state_dict(saved)


@pytest.mark.parametrize("name", [PENDULUM, CARTPOLE])
def test_a_call_of_n_ticks_equals_n_calls_of_one_and_mj_step(name):
    long, single = make(name, 3, seed=1), make(name, 3, seed=1)
    long.reset()
    single.reset()
    model = long._backend.model
    worlds = [mujoco.MjData(model) for _ in range(3)]
    for data, state in zip(worlds, long.state_dict()["state"].numpy(), strict=True):
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    random = generator()
    for _ in range(4):
        actions = random_actions(long, 5, random, scale=0.5)
        outcome = long.step(actions)
        ticks = [single.step(actions[:, i : i + 1]) for i in range(5)]
        for field in ("reward", "critic"):
            assert torch.equal(
                getattr(outcome, field), torch.cat([getattr(tick, field) for tick in ticks], 1)
            )
        assert torch.equal(long.state_dict()["state"], single.state_dict()["state"])
        for world, data in enumerate(worlds):
            for i in range(5):
                data.ctrl[:] = actions[world, i]
                mujoco.mj_step(model, data, long.spec.decimation)
            state = torch.tensor([data.time, *data.qpos, *data.qvel], dtype=torch.float64)
            assert torch.equal(long.state_dict()["state"][world], state)


@pytest.mark.parametrize("name", [PENDULUM, CARTPOLE])
def test_permuting_worlds_permutes_results_bit_for_bit(name):
    random = generator()
    permutation = torch.randperm(61, generator=random)
    task = short(name, 40)
    plain, permuted = Env(task, 61, seed=5), Env(task, 61, seed=5, world_ids=permutation)
    assert torch.equal(plain.reset().critic[permutation], permuted.reset().critic)
    for n in (1, 5, 3, 7) * 8:
        actions = random_actions(plain, n, random)
        expected, found = plain.step(actions), permuted.step(actions[permutation])
        for field in FIELDS:
            assert torch.equal(getattr(expected, field)[permutation], getattr(found, field)), field
        for source, values in expected.observation.sources.items():
            assert torch.equal(values[permutation], found.observation.sources[source])


def test_one_thread_and_two_give_the_same():
    one, two = (make(CARTPOLE, 64, seed=2, threads=threads) for threads in (1, 2))
    assert torch.equal(one.reset().critic, two.reset().critic)
    random = generator()
    for _ in range(20):
        actions = random_actions(one, 5, random)
        expected, found = one.step(actions), two.step(actions)
        assert all(torch.equal(getattr(expected, field), getattr(found, field)) for field in FIELDS)
    assert one.state_dict()["episode"].max() > 0


class OneWorld:
    """One world, tick by tick, in plain `mj_step`."""

    def __init__(self, env: Env, world: int, seed: int):
        self.task, self.world, self.seed = env.task, world, seed
        self.model = env._backend.model
        self.functions = env.task.bind(self.model)
        self.start = Start(self.model, env.spec)
        self.data = mujoco.MjData(self.model)
        self.episode = -1
        self.restart()

    def restart(self) -> None:
        self.episode, self.tick = self.episode + 1, 0
        one = [torch.tensor([value]) for value in (self.world, self.episode, 0)]
        uniform = Draws(self.seed, *one).uniform("initial_state", self.start.draws)
        qpos, qvel = self.start(uniform.numpy())
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos[0], qvel[0]

    def true(self) -> Ticks:
        qpos, qvel = (torch.tensor(values)[None, None].float() for values in (self.data.qpos, self.data.qvel))
        none = torch.empty(1, 1, 0)
        return Ticks(qpos, qvel, {}, none, none, torch.tensor([[self.tick]]), {})

    def call(self, actions: torch.Tensor) -> list[dict]:
        """The ticks until the end of the episode or of the call; then restarts."""
        ticks = []
        for action in actions:
            self.data.ctrl[:] = action
            mujoco.mj_step(self.model, self.data, self.task.spec.decimation)
            self.tick += 1
            terminated = bool(self.functions.terminated(self.true()))
            truncated = not terminated and self.tick == self.task.spec.episode_ticks
            ticks.append(
                {
                    "reward": self.functions.reward(self.true())["upright"].item(),
                    "critic": self.functions.critic(self.true())[0, 0],
                    "terminated": terminated,
                    "truncated": truncated,
                }
            )
            if terminated or truncated:
                self.restart()
                break
        return ticks


def test_ends_restarts_and_masks_are_those_of_single_worlds_at_every_phase():
    n, worlds, seed = 5, 24, 3
    seen = set()
    for episode_ticks in (28, 31, 34, 37, 40):
        env = Env(short(CARTPOLE, episode_ticks), worlds, seed=seed)
        env.reset()
        singles = [OneWorld(env, world, seed) for world in range(worlds)]
        push = torch.linspace(-12, 12, worlds)[:, None, None]
        for _ in range(20):
            actions = push + random_actions(env, n, generator(episode_ticks), scale=0.3)
            outcome = env.step(actions)
            for world, single in enumerate(singles):
                expected = single.call(actions[world])
                k = len(expected)
                assert outcome.valid[world].tolist() == [True] * k + [False] * (n - k)
                for field in ("terminated", "truncated"):
                    flags = [tick[field] for tick in expected] + [False] * (n - k)
                    assert getattr(outcome, field)[world].tolist() == flags
                    seen.update((field, phase) for phase, flag in enumerate(flags) if flag)
                assert torch.equal(
                    outcome.critic[world, :k], torch.stack([tick["critic"] for tick in expected])
                )
                assert outcome.reward[world, :k].tolist() == [tick["reward"] for tick in expected]
                assert (outcome.reward[world, k:] == 0).all()
                ended = expected[-1]["terminated"] or expected[-1]["truncated"]
                assert outcome.done[world].item() == ended
                now = single.true()
                assert torch.equal(outcome.observation.critic[world], single.functions.critic(now)[0, 0])
                assert torch.equal(outcome.observation.sources["pole_position"][world], now.qpos[0, 0, 1:])
    assert seen == {(field, phase) for field in ("terminated", "truncated") for phase in range(n)}


def test_an_episode_that_ends_in_its_last_tick_is_terminated_and_not_truncated():
    push = torch.full((1, 60, 1), 12.0)
    env = Env(get_task(CARTPOLE), 1)
    env.reset()
    end = env.step(push).terminated[0].nonzero().item()
    env = Env(short(CARTPOLE, end + 1), 1)
    env.reset()
    outcome = env.step(push)
    assert outcome.terminated[0].nonzero().tolist() == [[end]]
    assert not outcome.truncated.any()


def test_outcomes_are_not_overwritten_by_the_next_call():
    env = make(PENDULUM, 4)
    env.reset()
    first = env.step(torch.full((4, 2, 1), 0.5))
    copies = [getattr(first, field).clone() for field in FIELDS]
    env.step(torch.full((4, 2, 1), -0.5))
    assert all(torch.equal(getattr(first, field), copy) for field, copy in zip(FIELDS, copies, strict=True))


def test_a_diverged_world_terminates_unrewarded_and_leaves_the_others_alone():
    env, clean = make(PENDULUM, 3, seed=1), make(PENDULUM, 3, seed=1)
    for each in (env, clean):
        each.reset()
    put(env, column_2=torch.tensor([0.0, 0.9 * DIVERGED, 0.0]))
    put(clean, column_2=torch.zeros(3))
    rest = torch.zeros(3, 60, 1)
    outcome, expected = env.step(rest), clean.step(rest)
    end = outcome.terminated[1].nonzero().item()
    # The angle grows by 1.8e4 a tick and must not pass 1e6.
    assert 50 < end < 58
    assert outcome.reward[1, end] == 0
    assert outcome.valid[1].sum() == end + 1
    assert outcome.critic.isfinite().all()
    assert outcome.critic[1, end, 2].item() == pytest.approx(0.9 * DIVERGED / 5, rel=0.01)
    assert env.diverged == 1
    assert env.state_dict()["episode"].tolist() == [0, 1, 0]
    assert outcome.observation.critic[1, 2].abs() <= 0.2
    assert torch.equal(outcome.critic[[0, 2]], expected.critic[[0, 2]])
    assert torch.equal(outcome.reward[[0, 2]], expected.reward[[0, 2]])
    assert not env.step(torch.zeros(3, 5, 1)).done.any()


@pytest.mark.parametrize("n", [1, 4])
def test_physics_that_becomes_nan_is_caught_at_its_tick(n, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the engine writes a log
    env = make(CARTPOLE, 2)
    env.reset()
    put(env, column_1=torch.tensor([0.0, float("nan")]))
    outcome = env.step(torch.zeros(2, n, 1))
    assert outcome.terminated.tolist() == [[False] * n, [True] + [False] * (n - 1)]
    assert env.diverged == 1
    assert outcome.reward.isfinite().all()
    assert outcome.observation.critic.isfinite().all()


@pytest.mark.parametrize("name", [PENDULUM, CARTPOLE])
def test_a_saved_environment_continues_bit_for_bit(name, tmp_path):
    env = Env(short(name, 33), 8, seed=7)
    env.reset()
    random = generator()
    for _ in range(9):
        env.step(random_actions(env, 5, random))
    torch.save(env.state_dict(), tmp_path / "env.pt")
    later = [random_actions(env, 5, random) for _ in range(20)]
    expected = [env.step(actions) for actions in later]
    other = Env(short(name, 33), 8, seed=8)
    other.reset()
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    for actions, outcome in zip(later, expected, strict=True):
        found = other.step(actions)
        for field in FIELDS:
            assert torch.equal(getattr(found, field), getattr(outcome, field)), field
    assert other.state_dict()["episode"].min() > 2


def test_a_state_of_another_number_of_worlds_is_refused():
    with pytest.raises(AndanteError, match=r"expected \[3, 3\], found \[4, 3\]"):
        make(PENDULUM, 3).load_state_dict(make(PENDULUM, 4).state_dict())


def test_reset_starts_a_new_episode_in_every_world():
    env = make(PENDULUM, 16)
    first, second = env.reset(), env.reset()
    assert (first.critic != second.critic).any(1).all()


def test_unknown_task_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(AndanteError, match=f"no task 'pendulum'; tasks: {PENDULUM}, {CARTPOLE}"):
        make("pendulum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_worlds": 0}, "num_worlds must be at least 1, found 0"),
        ({"threads": 0}, "threads must be at least 1, found 0"),
        ({"device": "cuda"}, "device 'cuda'"),
    ],
)
def test_impossible_settings_are_refused(arguments, message):
    with pytest.raises(AndanteError, match=message):
        make(PENDULUM, **arguments)


@pytest.mark.parametrize("shape", [(2, 1), (2, 0, 1), (3, 5, 1), (2, 5, 2)])
def test_actions_of_another_shape_are_refused(shape):
    env = make(PENDULUM, 2)
    env.reset()
    with pytest.raises(AndanteError, match=r"actions: expected \[2, n, 1\], found"):
        env.step(torch.zeros(shape))


def test_an_action_that_is_not_finite_is_refused_by_its_place():
    env = make(PENDULUM, 4)
    env.reset()
    actions = torch.zeros(4, 5, 1)
    actions[2, 3, 0] = float("nan")
    before = env.state_dict()["state"]
    with pytest.raises(AndanteError, match="found nan \\(world 2, tick 3, column 0\\)"):
        env.step(actions)
    assert torch.equal(env.state_dict()["state"], before)


def test_stepping_before_a_reset_is_refused():
    with pytest.raises(AndanteError, match="step before reset"):
        make(PENDULUM, 2).step(torch.zeros(2, 1, 1))


@pytest.mark.parametrize("task", [PENDULUM, "quadruped-velocity"])
def test_more_worlds_than_memory_are_refused_before_they_are_made(task):
    with pytest.raises(AndanteError, match=r"num_worlds 1000000000: needs at least \d+ GB of memory"):
        make(task, 10**9)

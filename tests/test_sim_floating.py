"""Worlds with all that a task can have: a floating base, commands, pushes, variables, sensors, histories."""

from __future__ import annotations

import dataclasses

import mujoco
import pytest
import torch
from sled import PERIOD_NS, advance_variables, critic, sled_task, sources, with_flag

from andante.runtime.errors import AndanteError
from andante.sim.env import Env
from andante.sim.spec.task import JointStart, Pushes
from andante.sim.task import ORDERS, Functions, Task

FIELDS = ("reward", "terminated", "truncated", "valid", "critic", "done")


def actions_for(env: Env, ticks: int, seed: int = 0) -> torch.Tensor:
    high = torch.tensor(env.spec.action_high)
    random = torch.Generator().manual_seed(seed)
    return 0.7 * high * torch.randn(env.num_worlds, ticks, env.spec.action_size, generator=random)


def assert_equal(expected, found, index=slice(None)) -> None:
    for field in FIELDS:
        assert torch.equal(getattr(expected, field)[index], getattr(found, field)), field
    assert torch.equal(expected.observation.critic[index], found.observation.critic)
    for name, values in expected.observation.sources.items():
        assert torch.equal(values[index], found.observation.sources[name]), name


def test_a_call_of_n_ticks_equals_n_calls_of_one(tmp_path):
    long, single = (Env(sled_task(tmp_path), 6, seed=1) for _ in range(2))
    assert torch.equal(long.reset().critic, single.reset().critic)
    actions = actions_for(long, 60)
    tick = 0
    for n in (5, 7, 1, 25, 22):
        outcome = long.step(actions[:, tick : tick + n])
        ticks = [single.step(actions[:, tick + i : tick + i + 1]) for i in range(n)]
        tick += n
        for field in ("reward", "critic"):
            expected = torch.cat([getattr(each, field) for each in ticks], 1)
            assert torch.equal(getattr(outcome, field), expected), field
        assert torch.equal(outcome.observation.critic, ticks[-1].observation.critic)
        assert torch.equal(outcome.critic[:, -1], outcome.observation.critic)
        assert torch.equal(long.state_dict()["state"], single.state_dict()["state"])
        assert torch.equal(long.state_dict()["commands"]["value"], single.state_dict()["commands"]["value"])


def test_permuting_worlds_permutes_results_bit_for_bit(tmp_path):
    task = sled_task(tmp_path, episode_ticks=40)
    permutation = torch.randperm(23, generator=torch.Generator().manual_seed(0))
    plain, permuted = Env(task, 23, seed=5), Env(task, 23, seed=5, world_ids=permutation)
    assert torch.equal(plain.reset().critic[permutation], permuted.reset().critic)
    for i, n in enumerate((1, 5, 3, 7) * 6):
        actions = actions_for(plain, n, seed=i)
        assert_equal(plain.step(actions), permuted.step(actions[permutation]), permutation)
    assert plain.state_dict()["episode"].min() > 1


def test_one_thread_and_two_give_the_same(tmp_path):
    task = sled_task(tmp_path, episode_ticks=40)
    one, two = (Env(task, 32, seed=2, threads=threads) for threads in (1, 2))
    assert torch.equal(one.reset().critic, two.reset().critic)
    for i in range(12):
        actions = actions_for(one, 5, seed=i)
        assert_equal(one.step(actions), two.step(actions))


def test_a_saved_environment_continues_bit_for_bit(tmp_path):
    task = sled_task(tmp_path, episode_ticks=33, sources=sources(history=3))
    env, other = Env(task, 8, seed=7), Env(task, 8, seed=8)
    env.reset()
    for i in range(9):
        env.step(actions_for(env, 4, seed=i))
    torch.save(env.state_dict(), tmp_path / "env.pt")
    expected = [env.step(actions_for(env, 4, seed=100 + i)) for i in range(15)]
    other.reset()
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    for i, outcome in enumerate(expected):
        assert_equal(outcome, other.step(actions_for(env, 4, seed=100 + i)))


def test_nothing_of_an_episode_is_left_in_the_next(tmp_path):
    task = sled_task(tmp_path, episode_ticks=20, sources=sources(history=5))
    lived, fresh = Env(task, 6, seed=3), Env(task, 6, seed=3)
    lived.reset()
    fresh.reset()
    lived.step(actions_for(lived, 13))
    ended = lived.step(actions_for(lived, 9, seed=1))
    assert ended.done.all()
    second = fresh.reset()
    assert torch.equal(ended.observation.critic, second.critic)
    for name, values in second.sources.items():
        assert torch.equal(ended.observation.sources[name], values), name
    for i in range(3):
        actions = actions_for(lived, 4, seed=10 + i)
        assert_equal(lived.step(actions), fresh.step(actions))


def test_variables_advance_tick_by_tick_and_end_with_the_episode(tmp_path):
    env = Env(sled_task(tmp_path, episode_ticks=30), 4, seed=2)
    travel = env.reset().critic[:, -1:]
    assert ((travel >= 0) & (travel < 1)).all()
    calls = []

    def spy(before, ticks):
        calls.append(ticks)
        assert ticks.tick.shape == (4, 1)
        assert not ticks.variables
        assert ticks.actions.shape == (4, ORDERS + 1, 3)
        return advance_variables(before, ticks)

    variables = dataclasses.replace(env._functions.variables, advance=spy)
    env._functions = dataclasses.replace(env._functions, variables=variables)
    actions = actions_for(env, 6)
    outcome = env.step(actions)
    assert [call.tick[0].item() for call in calls] == [1, 2, 3, 4, 5, 6]
    assert torch.equal(calls[0].actions[:, :-1], torch.tensor(env.spec.action_center).expand(4, ORDERS, 3))
    assert torch.equal(calls[4].actions[0, -2:, 0], actions[0, 3:5, 0].clamp(-1, 1))
    for i in range(5):
        assert torch.equal(calls[i].qpos, calls[i + 1].qpos_before)
        assert torch.equal(calls[i].qvel, calls[i + 1].qvel_before)
    for i in range(6):
        travel = advance_variables({"travel": travel}, calls[i])["travel"]
        assert torch.equal(outcome.critic[:, i, -1:], travel)


def test_rewards_are_the_clipped_sum_of_terms_whose_means_are_told(tmp_path):
    env = Env(sled_task(tmp_path), 4, seed=2)
    env.reset()
    seen = {}
    reward = env._functions.reward

    def spy(ticks):
        seen.update(reward(ticks))
        return seen

    env._functions = dataclasses.replace(env._functions, reward=spy)
    outcome = env.step(actions_for(env, 10))
    total = sum(seen.values())
    assert total.min() < -2.0
    torch.testing.assert_close(outcome.reward, total.clamp(min=-2.0))
    assert outcome.terms.keys() == {"follow", "smooth", "travel", "sway"}
    for name, mean in outcome.terms.items():
        torch.testing.assert_close(mean, seen[name].mean())


def test_an_actuator_of_the_mjcf_is_driven_by_its_own_column(tmp_path):
    task = sled_task(tmp_path)
    task = dataclasses.replace(task, spec=with_flag(task.spec))
    env = Env(task, 2, seed=1)
    model = env._backend.model
    names = [model.actuator(i).name for i in range(model.nu)]
    assert names == ["flag", "pan", "tilt", "wheel"]
    assert model.actuator("flag").ctrlrange.tolist() == [-1, 1]
    env.reset()
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, env.state_dict()["state"][0].numpy(), mujoco.mjtState.mjSTATE_FULLPHYSICS)
    env.step(torch.tensor([0.3, 0.2, -4.0, 1.0]).expand(2, 1, -1))
    for name, value in zip(("pan", "tilt", "wheel", "flag"), (0.3, 0.2, -4.0, 1.0), strict=True):
        data.actuator(name).ctrl = torch.tensor(value).item()
    mujoco.mj_step(model, data, env.spec.decimation)
    expected = torch.tensor([*data.qpos, *data.qvel], dtype=torch.float64)
    assert torch.equal(env.state_dict()["state"][0, 1:], expected)


def test_commands_depend_on_world_episode_and_tick_alone(tmp_path):
    task = sled_task(tmp_path, episode_ticks=50)

    def commands(groups, ids):
        env = Env(task, len(ids), seed=9, world_ids=torch.tensor(ids))
        found = {0: env.reset().sources["command"]}
        tick = 0
        for n in groups:
            actions = torch.zeros(len(ids), n, 3)
            found[tick + n] = env.step(actions).observation.sources["command"]
            tick += n
        return found

    single = commands([1] * 100, [0, 1, 2, 3, 4, 5])
    for groups in ([5] * 20, [10] * 10, [25] * 4):
        for tick, values in commands(groups, [4, 2]).items():
            assert torch.equal(values, single[tick][[4, 2]]), tick
    assert len({tuple(values[0].tolist()) for values in single.values()}) > 8


def test_commands_are_drawn_at_their_interval_in_their_ranges_and_slewed(tmp_path):
    env = Env(sled_task(tmp_path, pushes=None), 400, seed=4)
    seen = [env.reset().sources["command"]]
    for _ in range(45):
        seen.append(env.step(torch.zeros(400, 1, 3)).observation.sources["command"])
    command = torch.stack(seen, 1)
    speed, turn = command[..., 0], command[..., 1]
    assert speed.min() >= -1
    assert speed.max() <= 2
    assert speed.diff(dim=1).abs().max() == pytest.approx(4.0 * PERIOD_NS * 1e-9, rel=1e-4)
    assert speed[:, 0].abs().max() == pytest.approx(4.0 * PERIOD_NS * 1e-9, rel=1e-4)
    jumps = (turn.diff(dim=1) != 0).float().mean(0).nonzero().squeeze(1) + 1
    assert jumps.tolist() == [11, 22, 33, 44]
    assert turn.abs().max() > 2.9
    still = (turn[:, [0, 11, 22, 33, 44]] == 0).float().mean()
    assert still == pytest.approx(0.2, abs=0.03)


def test_the_command_observed_is_the_one_that_the_next_tick_is_scored_by(tmp_path):
    env = Env(sled_task(tmp_path), 5, seed=6)
    observed = env.reset().sources["command"]
    scored = {}

    def spy(ticks):
        scored["command"] = ticks.command
        return {"none": ticks.qpos[..., 0] * 0}

    env._functions = dataclasses.replace(env._functions, reward=spy)
    for i in range(40):
        outcome = env.step(torch.zeros(5, 1, 3))
        assert torch.equal(scored["command"][:, 0], observed), i
        observed = outcome.observation.sources["command"]
        assert torch.equal(outcome.critic[:, 0, -3:-1], observed)


def test_a_task_without_sampling_keeps_its_command_at_rest(tmp_path):
    env = Env(sled_task(tmp_path, command=None), 3)
    assert env.reset().sources["command"].abs().max() == 0
    assert env.step(torch.zeros(3, 30, 3)).observation.sources["command"].abs().max() == 0


def push_task(tmp_path, **changes):
    pushes = Pushes("sled", **({"interval_ticks": 20, "duration_ticks": 4, "force": 300.0} | changes))
    return sled_task(tmp_path, pushes=pushes, command=None)


def test_pushes_come_once_in_every_interval_at_any_moment_of_it(tmp_path):
    task = push_task(tmp_path)
    calm_task = dataclasses.replace(task, spec=dataclasses.replace(task.spec, pushes=None))
    pushed, calm = Env(task, 64, seed=2), Env(calm_task, 64, seed=2)
    pushed.reset()
    calm.reset()
    begins = []
    for _ in range(2):
        moved = []
        for _ in range(20):
            calm.load_state_dict(pushed.state_dict())
            for env in (pushed, calm):
                env.step(torch.zeros(64, 1, 3))
            moved.append((pushed.state_dict()["state"] != calm.state_dict()["state"]).any(1))
        moved = torch.stack(moved, 1)
        assert (moved.sum(1) == 4).all()
        assert (moved.int().diff(dim=1) == 1).sum(1).max() <= 1
        begins.append(moved.int().argmax(1))
    assert begins[0].min() == 0
    assert begins[0].max() == 16
    assert not torch.equal(begins[0], begins[1])


def test_pushes_are_horizontal_in_any_direction_up_to_the_largest_force(tmp_path):
    env = Env(push_task(tmp_path, interval_ticks=4), 2000, seed=3)
    env.reset()
    ((body, wrench),) = env._shoves.forces(env._tick, 1, env._draws).items()
    assert env._backend.model.body(body).name == "sled"
    assert wrench[..., 2:].abs().max() == 0
    force = wrench[:, 0, :2]
    size = force.norm(dim=1)
    assert size.max() == pytest.approx(300, rel=0.01)
    assert size.mean() == pytest.approx(150, rel=0.05)
    assert (force / size[:, None]).mean(0).abs().max() < 0.05


def test_pushes_do_not_depend_on_grouping(tmp_path):
    single, grouped = (
        Env(push_task(tmp_path, interval_ticks=3, duration_ticks=1), 8, seed=2) for _ in range(2)
    )
    single.reset()
    grouped.reset()
    for n in (7, 1, 12, 4):
        grouped.step(torch.zeros(8, n, 3))
        for _ in range(n):
            single.step(torch.zeros(8, 1, 3))
        assert torch.equal(single.state_dict()["state"], grouped.state_dict()["state"])


def test_a_push_on_a_body_that_is_not_there_is_refused(tmp_path):
    task = push_task(tmp_path)
    spec = dataclasses.replace(task.spec, pushes=dataclasses.replace(task.spec.pushes, body="keel"))
    with pytest.raises(AndanteError, match="robot model 'sled' has no body 'keel' to push"):
        Env(dataclasses.replace(task, spec=spec), 1)


def test_each_world_may_have_its_own_model(tmp_path):
    env, plain = (Env(sled_task(tmp_path, pushes=None), 3, seed=1) for _ in range(2))
    heavy = env._backend.model.__copy__()
    heavy.body_mass[heavy.body("boom").id] *= 3
    env._backend.models[1] = heavy
    env.reset()
    plain.reset()
    actions = actions_for(env, 10)
    outcome, expected = env.step(actions), plain.step(actions)
    assert torch.equal(outcome.critic[[0, 2]], expected.critic[[0, 2]])
    assert not torch.equal(outcome.critic[1], expected.critic[1])


@pytest.mark.parametrize("n", [1, 6])
def test_everything_is_finite_when_physics_explodes(tmp_path, monkeypatch, n):
    monkeypatch.chdir(tmp_path)  # the engine writes a log
    env = Env(sled_task(tmp_path), 3, seed=1)
    env.reset()
    saved = env.state_dict()
    saved["state"][1, -2] = 9e5
    env.load_state_dict(saved)
    before = env._fresh_ticks(torch.tensor([1]))
    outcome = env.step(torch.zeros(3, n, 3))
    assert outcome.terminated[:, 0].tolist() == [False, True, False]
    assert env.diverged == 1
    assert outcome.critic.isfinite().all()
    assert outcome.reward.isfinite().all()
    assert all(values.isfinite().all() for values in outcome.observation.sources.values())
    # The state before, and what it measures.
    expected = critic(before)[0, 0, :15]
    torch.testing.assert_close(outcome.critic[1, :, :15], expected.expand(n, -1))


CROWD = """
<mujoco>
  <size memory="{memory}"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 {height}"><joint name="slide" type="slide" axis="0 0 1"/>
      {spheres}
    </body>
  </worldbody>
</mujoco>
"""


def test_a_world_that_mujoco_stops_ends_unrewarded_and_leaves_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the engine writes a log
    spheres = "".join(
        f'<geom size=".1" pos="{x} {y} 0" mass="1"/>' for x in range(-4, 5) for y in range(-4, 5)
    )
    task = sled_task(tmp_path)
    (tmp_path / "crowd.xml").write_text(CROWD.format(memory="100K", height=0.09, spheres=spheres))
    spec = dataclasses.replace(
        task.spec,
        robot_model=str(tmp_path / "crowd.xml"),
        sources=(),
        features=(),
        actions=(),
        action_center=None,
        base=None,
        command=None,
        pushes=None,
        start=(JointStart("slide", 0.0, 0.0, 0.0),),
    )
    functions = Functions(
        reward=lambda ticks: {"one": torch.ones(ticks.tick.shape)},
        terminated=lambda ticks: torch.zeros(ticks.tick.shape, dtype=torch.bool),
        critic=lambda ticks: ticks.qpos,
    )
    env = Env(Task(spec, 1, lambda model: functions), 2)
    env.reset()
    saved = env.state_dict()
    saved["state"][1, 1] = 3.0
    env.load_state_dict(saved)
    outcome = env.step(torch.zeros(2, 3, 0))
    assert outcome.terminated[:, 0].tolist() == [True, False]
    assert outcome.reward.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert env.diverged == 1

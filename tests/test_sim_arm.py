"""The arm's tasks: targets within reach, rewards that mean what they say, a demonstrator that succeeds."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest
import torch
from small_policy import small_contract

from andante.runtime.profile import check_fit, load_profile
from andante.sim import make
from andante.sim.demonstrator import Demonstrator, next_tip
from andante.sim.spec import get_spec
from andante.sim.spec.arm import JOINTS, POSITION_TARGETS, SCALE
from andante.sim.spec.arm_push import GOAL_RADIUS, READY
from andante.sim.spec.arm_reach import CENTER, HIGH, LOW
from andante.sim.spec.describe import describe
from andante.sim.spec.models import ROBOTS, build_model
from andante.sim.task import ORDERS, Functions, Ticks
from andante.sim.tasks import arm_push, arm_reach, get_task

PUSH, REACH = "arm-push", "arm-reach"


class Solver:
    """Joint positions that bring the tip somewhere, the tool at any angle, within the actions' limits."""

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(ROBOTS / "arm.xml"))
        self.data = mujoco.MjData(self.model)
        self.limits = np.array(POSITION_TARGETS.low), np.array(POSITION_TARGETS.high)

    def solve(self, tip, joints, iterations) -> tuple[np.ndarray, float]:
        """-> joints [6], rad, and by how much the tip misses, m."""
        jacobian, joints = np.zeros((3, 6)), np.array(joints)
        for _ in range(iterations):
            self.data.qpos[:] = joints
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
            mujoco.mj_jacSite(self.model, self.data, jacobian, None, self.model.site("tip").id)
            error = tip - self.data.site("tip").xpos
            square = jacobian @ jacobian.T + 1e-3 * np.eye(3)
            joints = np.clip(joints + jacobian.T @ np.linalg.solve(square, error), *self.limits)
        return joints, float(np.linalg.norm(error))


def tick(tip=(0.4, 0.0, 0.3), puck=(0.4, 0.0), command=(0.4, 0.0), change=0.0) -> Ticks:
    """One tick of one world, as if it had left this behind."""
    qpos, actions = torch.zeros(1, 1, 10), torch.zeros(1, ORDERS + 1, 6)
    qpos[..., 6:8] = torch.tensor(puck)
    actions[:, -1, 0] = change
    return Ticks(
        qpos=qpos,
        qvel=torch.zeros(1, 1, 10),
        sensors={"tip_position": torch.tensor(tip).view(1, 1, 3)},
        actions=actions,
        command=torch.tensor(command).view(1, 1, -1),
        tick=torch.ones(1, 1, dtype=torch.int64),
        variables={},
    )


def bound(name: str) -> Functions:
    return get_task(name).bind(build_model(get_spec(name)))


def mean_return(name: str, act, worlds: int = 8, seed: int = 3) -> float:
    """Of one episode per world under `act(sources) -> [B, 1, 6]`."""
    env = make(name, num_worlds=worlds, seed=seed)
    sources, total, running = env.reset().sources, torch.zeros(worlds), torch.ones(worlds, dtype=torch.bool)
    for _ in range(env.spec.episode_ticks):
        outcome = env.step(act(sources))
        total += outcome.reward[:, 0] * running
        running &= ~outcome.done
        sources = outcome.observation.sources
    return total.mean().item()


def zero(sources):
    return torch.tensor(CENTER).expand(len(sources["target"]), 1, 6)


def noise(center):
    generator, center, scale = torch.Generator().manual_seed(0), torch.tensor(center), torch.tensor(SCALE)

    def act(sources):
        return center + scale * (2 * torch.rand(len(sources["target"]), 1, 6, generator=generator) - 1)

    return act


def reach_by_solving(sources):
    solver = Solver()
    solved = [
        solver.solve(target.numpy(), joints.numpy(), 8)[0]
        for target, joints in zip(sources["target"], sources["joint_position"], strict=True)
    ]
    return torch.tensor(np.array(solved), dtype=torch.float32)[:, None]


def test_every_target_is_within_reach_of_the_actions():
    solver = Solver()
    for target in itertools.product(*(np.linspace(*ends, 4) for ends in zip(LOW, HIGH, strict=True))):
        _, miss = solver.solve(np.array(target), CENTER, 100)
        assert miss < 1e-3, target


def test_the_shipped_profile_repeats_the_models_limits_and_the_training_gains():
    profile, model = load_profile("arm"), build_model(get_spec(REACH))
    assert profile.joint_names == JOINTS
    for joint in profile.joints:
        index = model.joint(joint.name).id
        assert joint.position == pytest.approx(tuple(model.jnt_range[index]))
        assert (-joint.effort, joint.effort) == pytest.approx(tuple(model.jnt_actfrcrange[index]))
    assert tuple(profile.kp("hold")) == POSITION_TARGETS.kp
    assert tuple(profile.kd("hold")) == POSITION_TARGETS.kd
    check_fit(small_contract("arm"), profile)


@pytest.mark.parametrize("name", [REACH, PUSH])
def test_a_tasks_docstring_is_its_table(name):
    module = {REACH: arm_reach, PUSH: arm_push}[name]
    assert describe(get_spec(name)) in module.__doc__


def test_reaching_pays_more_than_standing_still_and_that_more_than_flailing():
    solved, still, flailing = (mean_return(REACH, act) for act in (reach_by_solving, zero, noise(CENTER)))
    assert solved > 150
    assert flailing < still < 0


def test_the_reach_reward_is_one_at_the_target_and_falls_with_distance_and_jerk():
    reward = bound(REACH).reward
    there = reward(tick(tip=(0.5, 0.1, 0.2), command=(0.5, 0.1, 0.2)))
    assert {name: value.item() for name, value in there.items()} == {
        "distance": 0,
        "near": 1,
        "smoothness": 0,
    }
    away = reward(tick(tip=(0.5, 0.1, 0.2), command=(0.2, 0.5, 0.2)))
    assert away["distance"].item() == pytest.approx(-0.5)
    assert away["near"].item() < 1e-6
    assert reward(tick(tip=(0.0,) * 3, command=(0.0,) * 3, change=2.0))["smoothness"].item() == pytest.approx(
        -0.08
    )


def test_the_push_reward_tells_only_whether_the_puck_lies_at_the_target():
    reward = bound(PUSH).reward
    for distance, expected in ((0.0, 1.0), (0.99 * GOAL_RADIUS, 1.0), (1.01 * GOAL_RADIUS, 0.0), (0.3, 0.0)):
        (value,) = reward(
            tick(puck=(0.4, 0.1), command=(0.4 + 0.6 * distance, 0.1 + 0.8 * distance))
        ).values()
        assert value.item() == expected


@pytest.mark.parametrize(
    ("puck", "lost"),
    [
        ((0.4, 0.0), False),
        ((0.14, 0.0), True),
        ((0.76, 0.0), True),
        ((0.4, 0.46), True),
        ((0.4, -0.46), True),
    ],
)
def test_a_puck_out_of_reach_ends_the_episode(puck, lost):
    assert bound(PUSH).terminated(tick(puck=puck)).item() is lost


def test_the_puck_rests_slides_and_stops_by_friction():
    model = build_model(get_spec(PUSH))
    data = mujoco.MjData(model)
    data.qpos[6:9] = 0.5, 0.3, 0.025
    data.ctrl[:] = data.qpos[:6] = READY
    mujoco.mj_step(model, data, 100)
    assert data.body("puck").xpos == pytest.approx([0.5, 0.3, 0.025], abs=1e-3)
    data.joint("puck_x").qvel[:] = 0.5
    mujoco.mj_step(model, data, 200)
    # v^2 / (2 mu g), mu = 0.6 of the table
    assert data.joint("puck_x").qpos.item() - 0.5 == pytest.approx(0.5**2 / (2 * 0.6 * 9.81), rel=0.15)
    assert abs(data.joint("puck_x").qvel.item()) < 1e-3


def test_the_demonstrator_brings_the_puck_to_its_target_and_chance_does_not():
    worlds = 32
    env, demonstrator = make(PUSH, num_worlds=worlds, seed=5), Demonstrator()
    sources, lost = env.reset().sources, torch.zeros(worlds, dtype=torch.bool)
    for _ in range(200):
        outcome = env.step(demonstrator.decide(sources))
        lost |= outcome.done
        sources = outcome.observation.sources
    assert (outcome.reward[:, 0] * ~lost).mean() >= 0.9
    assert mean_return(PUSH, noise(READY), worlds=32) < 40


def test_the_demonstrator_goes_over_the_puck_to_reach_its_far_side():
    low, target, puck = np.array([0.4, 0.0, 0.025]), np.array([0.3, 0.0]), np.array([0.46, 0.0])
    assert next_tip(low, puck, target)[2] > low[2] + 0.05
    above = next_tip(np.array([0.4, 0.0, 0.1]), puck, target)
    assert above[0] > 0.44
    assert above[2] > 0.09


def test_the_demonstrator_leaves_a_puck_that_has_arrived_alone():
    behind = np.array([0.42, 0.0, 0.025])
    assert next_tip(behind, np.array([0.5, 0.0]), np.array([0.51, 0.0])).tolist() == [0.42, 0.0, 0.1]


def test_a_demonstrated_action_depends_on_its_own_world_alone():
    env, demonstrator = make(PUSH, num_worlds=3, seed=1), Demonstrator()
    sources = env.reset().sources
    together = demonstrator.decide(sources)
    alone = demonstrator.decide({name: value[2:] for name, value in sources.items()})
    assert together.shape == (3, 1, 6)
    assert torch.equal(together[2:], alone)


def test_an_episode_starts_with_its_target_in_the_box_and_the_puck_at_rest_away_from_it():
    env = make(PUSH, num_worlds=64, seed=2)
    sources = env.reset().sources
    components = get_spec(PUSH).command_source.components
    for column, component in enumerate(components):
        values = sources["target"][:, column]
        assert component.low <= values.min() < values.max() <= component.high
    assert (sources["target"] - sources["puck_position"][:, :2]).norm(dim=1).min() > GOAL_RADIUS

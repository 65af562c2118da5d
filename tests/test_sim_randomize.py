"""Randomisation: each field's effect, against models compiled that way; no world depends on others."""

from __future__ import annotations

import dataclasses
from functools import partial

import msgspec
import mujoco
import numpy as np
import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.curriculum import AlpGmmConfig, SuccessConfig, UniformConfig
from andante.sim.env import Env
from andante.sim.randomize.draw import sample
from andante.sim.randomize.lessons import Lessons
from andante.sim.randomize.noise import white_noise
from andante.sim.randomness import Draws
from andante.sim.spec.models import build_model
from andante.sim.spec.randomization import (
    FIELDS,
    TIMING,
    Choice,
    CurriculumChoice,
    LogUniform,
    Normal,
    Randomization,
    Uniform,
    load_randomization,
)
from andante.sim.task import Task
from andante.sim.tasks import get_task
from andante.sim.worlds import Ends

WALK, HOVER, PENDULUM = "quadruped-velocity", "quadrotor-hover", "pendulum-swingup-blind"
OUTCOME = ("reward", "terminated", "truncated", "valid", "critic", "done")
EVERYTHING = Randomization(
    mass={"*": Uniform(0.8, 1.2), "trunk": LogUniform(0.9, 1.1)},
    center_of_mass={"trunk": Uniform(-0.03, 0.03)},
    friction={"*": Uniform(0.5, 1.2, shared=True)},
    kp={"*": Normal(1.0, 0.1, 0.7, 1.3)},
    kd={"*": Uniform(0.8, 1.2)},
    motor_strength={"*_calf": Uniform(0.8, 1.0)},
    armature={"*": Choice((0.5, 1.0, 2.0))},
    damping={"*": Uniform(0.5, 2.0)},
    gravity_tilt=Uniform(-0.05, 0.05),
    zero_offset={"*_thigh": Uniform(-0.05, 0.05)},
    mounting={"imu": Uniform(-0.05, 0.05)},
    noise={"*": 0.1},
    bias={"gyro": Uniform(-0.1, 0.1)},
    observation_delay={"*": Uniform(0, 3), "gyro": 1},
    action_delay=Uniform(0, 2),
)


def short(name: str, episode_ticks: int) -> Task:
    task = get_task(name)
    return dataclasses.replace(task, spec=dataclasses.replace(task.spec, episode_ticks=episode_ticks))


def random_actions(env: Env, n: int, calls: int = 1, share: float = 0.15) -> list[torch.Tensor]:
    """Around where actions of zero are."""
    random = torch.Generator().manual_seed(0)
    low, high, middle = map(torch.tensor, (env.spec.action_low, env.spec.action_high, env.spec.action_middle))
    shape = (env.num_worlds, n, env.spec.action_size)
    return [middle + share * (high - low) * torch.randn(shape, generator=random) for _ in range(calls)]


def assert_same(expected, found) -> None:
    for field in OUTCOME:
        assert torch.equal(getattr(expected, field), getattr(found, field)), field
    for name, value in expected.observation.sources.items():
        assert torch.equal(value, found.observation.sources[name]), name


# Distributions


def test_values_are_distributed_as_declared():
    uniform = np.random.default_rng(0).random(20_000)
    values = sample(Uniform(-1.0, 3.0), uniform)
    assert (values.min(), values.max()) == pytest.approx((-1.0, 3.0), abs=0.01)
    assert values.mean() == pytest.approx(1.0, abs=0.03)
    values = sample(LogUniform(0.25, 4.0), uniform)
    assert np.median(values) == pytest.approx(1.0, abs=0.03)
    assert values.min() >= 0.25 and values.max() <= 4.0
    values = sample(Normal(1.0, 0.5, 0.0, 3.0), uniform)
    assert values.std() == pytest.approx(0.49, abs=0.02)
    assert values.min() == 0.0 and (values == 0.0).mean() == pytest.approx(0.0228, abs=0.005)
    values = sample(Choice((1.0, 2.0, 7.0)), uniform)
    assert {value: round((values == value).mean(), 1) for value in (1.0, 2.0, 7.0)} == dict.fromkeys(
        (1.0, 2.0, 7.0), 0.3
    )
    assert (sample(2.5, uniform) == 2.5).all()
    ticks = sample(Uniform(0.0, 3.0), uniform, whole=True)
    assert np.bincount(ticks.astype(int)) == pytest.approx(np.full(4, 5000), rel=0.05)


def test_white_noise_is_standard_normal_and_independent():
    worlds = torch.arange(5000)
    draws = Draws(1, worlds, torch.zeros_like(worlds), worlds % 7)
    noise = white_noise(draws, "noise", 40)
    assert noise.mean().abs() < 0.02 and abs(noise.std() - 1.0) < 0.02
    assert (noise**4).mean() == pytest.approx(3.0, abs=0.15)
    assert (noise[:, 1:] * noise[:, :-1]).mean().abs() < 0.02
    assert (noise[1:] * noise[:-1]).mean().abs() < 0.02


# Nothing given, or nothing but nominal values


def test_without_randomisation_all_worlds_share_one_model():
    env = make(WALK, 4, randomization=Randomization(noise={"gyro": 0.1}, observation_delay={"*": 2}))
    assert len({id(model) for model in env._backend.models}) == 1


def test_nominal_values_are_the_nominal_model_bit_for_bit():
    nominal = Randomization(
        mass={"*": Uniform(1, 1)},
        center_of_mass={"*": 0},
        friction={"*": 1},
        kp={"*": LogUniform(1, 1)},
        kd={"*": Choice((1,))},
        motor_strength={"*": 1},
        armature={"*": 1},
        damping={"*": Normal(1, 0.1, 1, 1)},
        gravity_tilt=Uniform(0, 0),
        zero_offset={"*": 0},
        mounting={"*": 0},
        noise={"*": 0},
        bias={"*": 0},
        observation_delay={"*": 0},
        action_delay=0,
    )
    task = short(WALK, 20)
    plain, randomised = Env(task, 8, seed=3), Env(task, 8, seed=3, randomization=nominal)
    assert torch.equal(plain.reset().critic, randomised.reset().critic)
    for actions in random_actions(plain, 5, calls=8):
        assert_same(plain.step(actions), randomised.step(actions))
        assert torch.equal(plain.state_dict()["state"], randomised.state_dict()["state"])
    assert plain.state_dict()["episode"].min() > 0


# Physics, against models that are compiled that way


def scaled(attribute: str, factor: float, spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            # Damping has a coefficient for each power of the velocity.
            setattr(joint, attribute, factor * np.asarray(getattr(joint, attribute)))


def heavier(factor: float, shift: tuple[float, float, float], spec: mujoco.MjSpec) -> None:
    """The trunk, by its box."""
    trunk = spec.body("trunk")
    trunk.explicitinertial = True
    trunk.mass = 5.2 * factor
    x, y, z = 0.38, 0.15, 0.11
    trunk.inertia = trunk.mass / 12 * np.array([y * y + z * z, x * x + z * z, x * x + y * y])
    trunk.ipos = shift
    for geom in trunk.geoms:
        geom.mass = 0.0


def slippery(factor: float, spec: mujoco.MjSpec) -> None:
    for geom in spec.geoms:
        geom.friction[0] *= factor


def slope(angles: tuple[float, float], spec: mujoco.MjSpec) -> None:
    vector, quaternion, gravity = np.array([*angles, 0.0]), np.zeros(4), np.zeros(3)
    angle = np.linalg.norm(vector)
    mujoco.mju_axisAngle2Quat(quaternion, vector / angle, angle)
    mujoco.mju_rotVecQuat(gravity, np.array([0.0, 0.0, -9.81]), quaternion)
    spec.option.gravity = gravity


def weaker(factor: float, spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        joint.actfrcrange = factor * np.asarray(joint.actfrcrange)


def gains(kp: float, kd: float):
    term = get_task(WALK).spec.actions[0]
    return msgspec.structs.replace(
        term, kp=tuple(kp * gain for gain in term.kp), kd=tuple(kd * gain for gain in term.kd)
    )


PHYSICS = {
    "mass": (Randomization(mass={"trunk": 1.5}), partial(heavier, 1.5, (0.0, 0.0, 0.0)), gains(1, 1)),
    "center_of_mass": (
        Randomization(center_of_mass={"trunk": 0.04}),
        partial(heavier, 1.0, (0.04, 0.04, 0.04)),
        gains(1, 1),
    ),
    "friction": (Randomization(friction={"*": 0.1}), partial(slippery, 0.1), gains(1, 1)),
    "kp": (Randomization(kp={"*": 0.7}), None, gains(0.7, 1)),
    "kd": (Randomization(kd={"*": 1.6}), None, gains(1, 1.6)),
    "motor_strength": (Randomization(motor_strength={"*": 0.6}), partial(weaker, 0.6), gains(0.6, 0.6)),
    "armature": (Randomization(armature={"*": 2.0}), partial(scaled, "armature", 2.0), gains(1, 1)),
    "damping": (Randomization(damping={"*": 5.0}), partial(scaled, "damping", 5.0), gains(1, 1)),
    "gravity_tilt": (Randomization(gravity_tilt=0.1), partial(slope, (0.1, 0.1)), gains(1, 1)),
}


def walked(randomization: Randomization | None, ticks: int = 25):
    """States [ticks + 1, S] of one world under some actions, and those actions."""
    env = make(WALK, 1, seed=1, threads=1, randomization=randomization)
    env.reset()
    states = [env.state_dict()["state"][0]]
    actions = random_actions(env, 1, calls=ticks)
    for action in actions:
        env.step(action)
        states.append(env.state_dict()["state"][0])
    assert env.state_dict()["episode"] == 0
    return torch.stack(states).numpy(), torch.cat(actions, 1)[0]


@pytest.mark.parametrize("field", PHYSICS)
def test_randomised_physics_is_that_of_a_model_compiled_so(field):
    randomization, edit, term = PHYSICS[field]
    spec = get_task(WALK).spec

    def edited(model: mujoco.MjSpec) -> None:
        spec.edit_model(model)
        if edit is not None:
            edit(model)

    model = build_model(dataclasses.replace(spec, edit_model=edited, actions=(term,)))
    data = mujoco.MjData(model)
    found, actions = walked(randomization)
    mujoco.mj_setState(model, data, found[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)
    low, high = model.actuator_ctrlrange.T
    for action, state in zip(actions.numpy(), found[1:], strict=True):
        data.ctrl[:] = np.clip(action, low, high)
        mujoco.mj_step(model, data, spec.decimation)
        assert state == pytest.approx(np.array([data.time, *data.qpos, *data.qvel]), abs=1e-5)
    nominal, _ = walked(None)
    assert np.abs(found[-1] - nominal[-1])[1:].max() > 1e-2


def test_a_shifted_centre_of_mass_moves_nothing_else():
    env = make("hexapod-velocity", 1, randomization=Randomization(center_of_mass={"*": 0.05}))
    env.reset()
    nominal, shifted = (
        (model, mujoco.MjData(model)) for model in (env._backend.model, env._backend.models[0])
    )
    for model, data in (nominal, shifted):
        data.qpos[:] = env.state_dict()["state"][0, 1 : 1 + model.nq].numpy()
        mujoco.mj_forward(model, data)
    for places in ("xpos", "geom_xpos", "site_xpos", "geom_xmat"):
        assert getattr(shifted[1], places) == pytest.approx(getattr(nominal[1], places), abs=1e-12), places
    turned = nominal[1].xmat.reshape(-1, 3, 3) @ np.full(3, 0.05)
    assert shifted[1].xipos[1:] == pytest.approx((nominal[1].xipos + turned)[1:], abs=1e-12)


def test_a_zero_offset_deceives_the_drive_and_shows_in_the_reading():
    env = make(WALK, 1, seed=1, randomization=Randomization(zero_offset={"FL_calf": 0.1}))
    exact = make(WALK, 1, seed=1)
    read, true = env.reset().sources["joint_position"], exact.reset().sources["joint_position"]
    assert (read - true)[0].tolist() == pytest.approx([0, 0, 0.1] + [0] * 9, abs=1e-6)
    deceived, shifted = random_actions(env, 1, calls=10, share=0.02), []
    for action in deceived:
        shifted.append(action.clone())
        shifted[-1][..., 2] -= 0.1
    for action, other in zip(deceived, shifted, strict=True):
        env.step(action), exact.step(other)
    assert torch.allclose(env.state_dict()["state"], exact.state_dict()["state"], atol=1e-6)


# Sensors


def test_noise_has_its_size_and_is_new_at_every_tick():
    sizes = {"gyro": 0.3, "joint_velocity": 1.5}
    noisy, exact = make(WALK, 200, seed=1, randomization=Randomization(noise=sizes)), make(WALK, 200, seed=1)
    first = noisy.reset().sources["gyro"] - exact.reset().sources["gyro"]
    (action,) = random_actions(noisy, 1)
    found, true = noisy.step(action).observation.sources, exact.step(action).observation.sources
    assert torch.equal(noisy.state_dict()["state"], exact.state_dict()["state"])
    for name, size in sizes.items():
        assert (found[name] - true[name]).std() == pytest.approx(size, rel=0.1)
    assert (
        torch.corrcoef(torch.stack(((found["gyro"] - true["gyro"]).flatten(), first.flatten())))[0, 1].abs()
        < 0.2
    )
    assert torch.equal(found["joint_position"], true["joint_position"])


def test_a_bias_stays_for_an_episode():
    task = short(WALK, 3)
    biased, exact = (
        Env(task, 4, seed=1, randomization=Randomization(bias={"gyro": Uniform(-1.0, 1.0)})),
        Env(task, 4, seed=1),
    )
    biases = [biased.reset().sources["gyro"] - exact.reset().sources["gyro"]]
    for action in random_actions(biased, 1, calls=5):
        found, true = biased.step(action).observation.sources, exact.step(action).observation.sources
        biases.append(found["gyro"] - true["gyro"])
    for i in (1, 2, 4, 5):
        assert torch.allclose(biases[i], biases[3 if i > 3 else 0], atol=1e-5)
    assert (biases[3] - biases[0]).abs().min() > 1e-3
    assert biases[0].unique().numel() == 12


def turn(vector: np.ndarray, angles: np.ndarray) -> np.ndarray:
    quaternion, turned = np.zeros(4), np.zeros(3)
    angle = np.linalg.norm(angles)
    mujoco.mju_axisAngle2Quat(quaternion, angles / angle, angle)
    mujoco.mju_rotVecQuat(turned, vector, quaternion)
    return turned


def test_a_turned_imu_reads_along_its_own_axes():
    env = make(WALK, 1, seed=1, randomization=Randomization(mounting={"imu": 0.2}))
    exact = make(WALK, 1, seed=1)
    env.reset(), exact.reset()
    for action in random_actions(env, 5, calls=2):
        found, true = env.step(action).observation.sources, exact.step(action).observation.sources
        for name in ("gyro", "gravity"):
            expected = turn(true[name][0].double().numpy(), np.full(3, -0.2))
            assert found[name][0].numpy() == pytest.approx(expected, abs=1e-5)
        assert (found["gravity"] - true["gravity"]).abs().max() > 0.05


def test_gravity_is_measured_where_it_is():
    env = make(WALK, 1, seed=1, randomization=Randomization(gravity_tilt=0.1))
    sources = env.reset().sources
    x, y, z, w = 0.0, 0.0, 0.0, 0.0
    w, x, y, z = env.state_dict()["state"][0, 4:8].numpy()
    down, body = turn(np.array([0.0, 0.0, -1.0]), np.array([0.1, 0.1, 0.0])), np.zeros(3)
    mujoco.mju_rotVecQuat(body, down, np.array([w, -x, -y, -z]))
    assert sources["gravity"][0].numpy() == pytest.approx(body, abs=1e-6)


@pytest.mark.parametrize("n", [1, 5])
def test_delayed_readings_are_those_of_earlier_ticks(n):
    delays = {"gyro": Uniform(0, 3), "joint_*": 2}
    late, exact = (
        make(WALK, 32, seed=2, randomization=Randomization(observation_delay=delays)),
        make(WALK, 32, seed=2),
    )
    past = [exact.reset().sources]
    first = late.reset().sources
    assert torch.equal(first["gyro"], past[0]["gyro"])
    actions = random_actions(late, 10)[0]
    for i in range(10):
        past.append(exact.step(actions[:, i : i + 1]).observation.sources)
    for i in range(0, 10, n):
        sources = late.step(actions[:, i : i + n]).observation.sources
    assert torch.equal(sources["joint_position"], past[8]["joint_position"])
    assert torch.equal(sources["last_action"], past[10]["last_action"])
    age = [
        [torch.equal(sources["gyro"][world], past[10 - d]["gyro"][world]) for d in range(4)]
        for world in range(32)
    ]
    assert np.array(age).sum(1).tolist() == [1] * 32
    assert np.array(age).any(0).all()


def test_before_there_is_an_older_reading_the_first_one_stays():
    env = make(WALK, 2, seed=2, randomization=Randomization(observation_delay={"*": 3}))
    first = env.reset().sources["joint_position"]
    readings = [
        env.step(action).observation.sources["joint_position"] for action in random_actions(env, 1, calls=4)
    ]
    assert all(torch.equal(reading, first) for reading in readings[:3])
    assert not torch.equal(readings[3], first)


def test_delayed_actions_take_effect_later_and_are_reported_at_once():
    late, exact = make(HOVER, 3, seed=2, randomization=Randomization(action_delay=2)), make(HOVER, 3, seed=2)
    late.reset(), exact.reset()
    actions = random_actions(late, 6)[0]
    rest = torch.tensor(late.spec.action_middle).expand(3, 2, -1)
    outcome = late.step(actions)
    exact.step(torch.cat((rest, actions[:, :4]), 1))
    assert torch.equal(late.state_dict()["state"], exact.state_dict()["state"])
    assert torch.equal(outcome.observation.sources["executed_action"], actions[:, -1].clamp(0.0, 4.0))


# Worlds and episodes


def test_worlds_and_episodes_differ_and_are_repeated_by_their_seed():
    task, randomization = short(WALK, 3), Randomization(mass={"*": Uniform(0.5, 2.0)})
    env, again, other = (Env(task, 3, seed=seed, randomization=randomization) for seed in (1, 1, 2))
    masses = []
    for each in (env, again, other):
        each.reset()
        masses.append(np.stack([model.body_mass for model in each._backend.models]))
    assert np.array_equal(masses[0], masses[1])
    assert len(np.unique(masses[0][:, 1:] / env._backend.model.body_mass[1:])) == 3 * 13
    assert not np.isclose(masses[0], masses[2])[:, 1:].any()
    env.step(random_actions(env, 3)[0])
    second = np.stack([model.body_mass for model in env._backend.models])
    assert not np.isclose(masses[0], second)[:, 1:].any()
    assert second[0].sum() == pytest.approx(env._backend.models[0].body_subtreemass[0])


def test_a_shared_draw_is_one_for_all_and_several_names_multiply():
    env = make(WALK, 2, randomization=Randomization(kp={"*": Uniform(0.5, 2.0, shared=True), "FL_hip": 3.0}))
    env.reset()
    factor = env._backend.models[0].actuator_gainprm[:, 0] / env._backend.model.actuator_gainprm[:, 0]
    assert factor == pytest.approx([3 * factor[1], *[factor[1]] * 11])
    assert factor[1] != 1.0


@pytest.mark.parametrize("n", [1, 4])
def test_permuting_worlds_permutes_results_bit_for_bit(n):
    permutation, task = torch.randperm(9, generator=torch.Generator().manual_seed(1)), short(WALK, 8)
    plain = Env(task, 9, seed=5, randomization=EVERYTHING)
    permuted = Env(task, 9, seed=5, randomization=EVERYTHING, world_ids=permutation)
    assert torch.equal(plain.reset().sources["gyro"][permutation], permuted.reset().sources["gyro"])
    for actions in random_actions(plain, n, calls=20 // n):
        expected, found = plain.step(actions), permuted.step(actions[permutation])
        for field in OUTCOME:
            assert torch.equal(getattr(expected, field)[permutation], getattr(found, field)), field
        for name, value in expected.observation.sources.items():
            assert torch.equal(value[permutation], found.observation.sources[name]), name


def test_threads_and_the_grouping_of_ticks_do_not_show():
    task = short(WALK, 8)
    one, two = (Env(task, 9, seed=5, threads=threads, randomization=EVERYTHING) for threads in (1, 2))
    one.reset(), two.reset()
    for actions in random_actions(one, 4, calls=5):
        expected = one.step(actions)
        ticks = [two.step(actions[:, i : i + 1]) for i in range(4)]
        assert torch.equal(expected.reward, torch.cat([tick.reward for tick in ticks], 1))
        for name, value in expected.observation.sources.items():
            assert torch.equal(value, ticks[-1].observation.sources[name]), name


def test_a_saved_environment_continues_bit_for_bit(tmp_path):
    task = short(WALK, 9)
    env = Env(task, 6, seed=7, randomization=EVERYTHING)
    env.reset()
    actions = random_actions(env, 4, calls=10)
    for action in actions[:4]:
        env.step(action)
    torch.save(env.state_dict(), tmp_path / "env.pt")
    other = Env(task, 6, seed=8, randomization=EVERYTHING)
    other.reset()
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    for action in actions[4:]:
        assert_same(env.step(action), other.step(action))


# Curricula


def lessons(teacher, score: str = "survival", noise: float = 0.0) -> Randomization:
    return Randomization(
        observation_delay={"*": Uniform(0, 4)},
        bias={"joint_position": Uniform(-1.0, 1.0)},
        noise={"*": noise},
        curriculum=CurriculumChoice(
            ranges=("bias.joint_position", "observation_delay.*"), teacher=teacher, score=score
        ),
    )


START = {"bias.joint_position": 0.5, "observation_delay.*": 1.0}


@pytest.mark.parametrize(("score", "grows"), [("survival", True), ("return", False)])
def test_ranges_grow_from_the_start_where_episodes_succeed(score, grows):
    """Every episode of the pendulum lasts to its end; its return in three ticks is below three."""
    teacher = SuccessConfig(
        start=START, success_score=1.0 if score == "survival" else 3.1, episodes=8, steps=4
    )
    env = Env(short(PENDULUM, 3), 16, seed=1, randomization=lessons(teacher, score))
    exact = Env(short(PENDULUM, 3), 16, seed=1)
    bias = env.reset().sources["joint_position"] - exact.reset().sources["joint_position"]
    assert torch.allclose(bias, torch.full((16, 1), 0.5), atol=1e-6)
    for action in random_actions(env, 3, calls=6):
        last = env.step(action).observation.sources["joint_position"]
        bias = last - exact.step(action).observation.sources["joint_position"]
    frontier = env.curriculum_statistics()
    if not grows:
        assert frontier["bias.joint_position/low"] == frontier["bias.joint_position/high"] == 0.5
        return
    assert frontier["bias.joint_position/low"] < 0.0 and frontier["bias.joint_position/high"] > 0.6
    assert frontier["observation_delay.*/high"] > 2.0
    assert bias.min() < 0.2 and bias.max() > 0.5 and bias.unique().numel() > 8
    assert (
        frontier["bias.joint_position/low"] <= bias.min()
        and bias.max() <= frontier["bias.joint_position/high"]
    )


def test_the_score_is_that_of_the_episode_alone():
    """Ticks are worth one each: two in each of the first two episodes, then idle; four in the third."""
    teacher = SuccessConfig(start=START, success_score=2.5, episodes=1, steps=4)
    randomization = lessons(teacher, "return")
    learned = Lessons(randomization, randomization.curriculum, 1, torch.device("cpu"))
    one, no = torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool)
    start = Draws(0, *[torch.zeros(1, dtype=torch.int64)] * 3)
    for _ in range(2):
        learned.begin(torch.tensor([0]), start)
        learned.learn(one, Ends.of(torch.tensor([[False, True, False]]), no))
        assert learned.statistics()["observation_delay.*/high"] == 1.0
    learned.begin(torch.tensor([0]), start)
    learned.learn(one, Ends.of(no, no))
    learned.learn(one, Ends.of(no, torch.tensor([[True, False, False]])))
    assert learned.statistics()["observation_delay.*/high"] > 1.0


@pytest.mark.parametrize(
    "teacher",
    [
        UniformConfig(),
        SuccessConfig(start=START, success_score=0.5, episodes=4),
        AlpGmmConfig(fit_every=20, window=20, max_components=3),
    ],
)
def test_a_saved_curriculum_continues_bit_for_bit(teacher, tmp_path):
    task, randomization = short(PENDULUM, 5), lessons(teacher, "return", noise=0.1)
    env = Env(task, 8, seed=7, randomization=randomization)
    env.reset()
    actions = random_actions(env, 3, calls=30)
    for action in actions[:17]:
        env.step(action)
    torch.save(env.state_dict(), tmp_path / "env.pt")
    other = Env(task, 8, seed=8, randomization=randomization)
    other.reset()
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    for action in actions[17:]:
        assert_same(env.step(action), other.step(action))
    assert env.curriculum_statistics() == other.curriculum_statistics()


def test_permuting_worlds_permutes_results_under_a_curriculum():
    permutation, task = torch.tensor([3, 1, 5, 0, 2, 4]), short(PENDULUM, 4)
    randomization = lessons(SuccessConfig(start=START, success_score=0.5, episodes=4))
    plain = Env(task, 6, seed=5, randomization=randomization)
    permuted = Env(task, 6, seed=5, randomization=randomization, world_ids=permutation)
    plain.reset(), permuted.reset()
    for actions in random_actions(plain, 3, calls=12):
        expected, found = plain.step(actions), permuted.step(actions[permutation])
        sources = found.observation.sources["joint_position"]
        assert torch.equal(expected.observation.sources["joint_position"][permutation], sources)
    assert plain.curriculum_statistics()["observation_delay.*/high"] > 1.0


# As data


def test_a_file_gives_what_was_written_and_travels_as_json(tmp_path):
    path = tmp_path / "rough.yaml"
    path.write_text(
        "mass: {trunk: {kind: uniform, low: 0.8, high: 1.2}}\n"
        "friction: {'*': {kind: normal, mean: 1, std: 0.2, low: 0.5, high: 1.5, shared: true}}\n"
        "action_delay: {kind: choice, values: [0, 1]}\n"
        "noise: {gyro: 0.1}\n"
        "curriculum: {ranges: [mass.trunk], teacher: {kind: uniform}}\n"
    )
    randomization = load_randomization(path)
    assert randomization == Randomization(
        mass={"trunk": Uniform(0.8, 1.2)},
        friction={"*": Normal(1.0, 0.2, 0.5, 1.5, shared=True)},
        action_delay=Choice((0.0, 1.0)),
        noise={"gyro": 0.1},
        curriculum=CurriculumChoice(ranges=("mass.trunk",), teacher=UniformConfig()),
    )
    assert msgspec.json.decode(msgspec.json.encode(randomization), type=Randomization) == randomization
    assert not randomization.nominal and Randomization().nominal


def test_every_field_is_checked_for_what_is_possible():
    fields = {field.name for field in msgspec.structs.fields(Randomization)}
    assert fields == {*FIELDS, "curriculum"}
    for name, (low, high) in FIELDS.items():
        wrong = [bound for bound in (low - 1.0, high + 1.0) if np.isfinite(bound)] or [np.inf]
        for value in wrong:
            given = (
                {name: {"x": value}} if isinstance(getattr(Randomization(), name), dict) else {name: value}
            )
            with pytest.raises(AndanteError, match=name):
                Randomization(**given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frction: {}", "unknown field `frction`"),
        ("mass: {trunk: {kind: unform, low: 1, high: 2}}", "'unform'"),
        (
            "mass: {trunk: {kind: uniform, low: 2, high: 1}}",
            "mass.trunk: low must be at most high, found 2 and 1",
        ),
        ("noise: {gyro: -1}", "noise.gyro must be from 0 to inf, found -1 to -1"),
        ("mass: {trunk: 0}", "mass.trunk must be from 0.001 to 1000, found 0 to 0"),
        ("observation_delay: {gyro: 0.5}", "observation_delay.gyro must be whole ticks, found 0.5, 0.5"),
        ("bias: {gyro: .inf}", "bias.gyro must be finite"),
        ("bias: {gyro: {kind: choice, values: []}}", "bias.gyro: no values"),
        ("kp: {a: {kind: log_uniform, low: 0, high: 1}}", "kp.a: a log_uniform range must be positive"),
        ("kp: {a: {kind: normal, mean: 1, std: -1, low: 0, high: 2}}", "kp.a: mean and std"),
        ("dropped_decisions: 1", "dropped_decisions must be below 1, so that some decisions come through"),
        (
            "starvation: {kind: choice, values: [0, 1]}\nstarvation_ticks: 1",
            "starvation must be below 1, so that some decisions come through, found 1",
        ),
        ("starvation: 0.1", "starvation and starvation_ticks must be given together"),
        ("curriculum: {ranges: [mass.leg], teacher: {kind: uniform}}", "no range 'mass.leg'"),
        ("{mass: {leg: 1}, curriculum: {ranges: [mass.leg], teacher: {kind: uniform}}}", "must be uniform"),
        ("mass: [1]", "Expected `object`"),
        ("mass: {a: 1, a: 2}", "'a' given twice"),
        ("frictoin: {a: 1}", "unknown field `frictoin`; fields: mass, center_of_mass, friction, "),
        (
            "mass: {a: {kind: uniform, low: 1, hihg: 2}}",
            "`hihg` - at `$.mass[...]`; fields: low, high, shared",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(text, message, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(AndanteError) as error:
        load_randomization(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("task", "randomization", "message"),
    [
        (WALK, {"mass": {"head": 2.0}}, "mass.head: no body of that name; there are: trunk, FL_hip"),
        (WALK, {"friction": {"flor": 2.0}}, "friction.flor: no geom of that name; there are: floor, trunk"),
        (WALK, {"damping": {"base": 2.0}}, "damping.base: no joint of that name; there are: FL_hip"),
        (WALK, {"noise": {"giro": 2.0}}, "noise.giro: no measured source of that name; there are: gyro"),
        (WALK, {"noise": {"clock": 2.0}}, "noise.clock: no measured source"),
        (WALK, {"observation_delay": {"command": 2}}, "observation_delay.command: no measured source"),
        (
            WALK,
            {"mounting": {"trunk": 0.1}},
            "mounting.trunk: no frame of an IMU of that name; there are: imu",
        ),
        (HOVER, {"kp": {"*": 1.1}}, "kp.*: no joint with a position gain of that name; there are: none"),
        (HOVER, {"zero_offset": {"*": 0.1}}, "zero_offset.*: no joint with an encoder"),
        ("arm-push", {"center_of_mass": {"*": 0.1}}, "the centre of mass of body 'puck' cannot be shifted"),
        ("tmaze", {"noise": {"*": 0.1}}, "task 'tmaze' has no robot: nothing of it can be randomised"),
    ],
)
def test_what_the_robot_lacks_is_refused_by_its_name(task, randomization, message):
    with pytest.raises(AndanteError) as error:
        make(task, 2, randomization=Randomization(**randomization))
    assert message in str(error.value)


def test_a_factor_on_nothing_is_refused():
    task = get_task(PENDULUM)

    def smooth(spec: mujoco.MjSpec) -> None:
        scaled("damping", 0.0, spec)

    task = dataclasses.replace(task, spec=dataclasses.replace(task.spec, edit_model=smooth))
    with pytest.raises(
        AndanteError, match=r"damping\.hinge: zero in the robot model, which no factor changes"
    ):
        Env(task, 2, randomization=Randomization(damping={"hinge": 2.0}))


def test_the_fields_of_decisions_are_drawn_for_each_world_and_episode():
    randomization = Randomization(
        inference_delay=Uniform(0, 2), execution_horizon=Choice((3, 5)), dropped_decisions=Uniform(0.2, 0.4)
    )
    env = Env(short(PENDULUM, 2), 64, seed=1, randomization=randomization)
    env.reset()
    delay, horizon = env.timing.inference_delay, env.timing.execution_horizon
    assert sorted(delay.unique().tolist()) == [0, 1, 2] and sorted(horizon.unique().tolist()) == [3, 5]
    lost = torch.stack([env.decision_fates().dropped])
    assert 0 < lost.sum() < 40
    env.step(torch.zeros(64, 2, 1))
    assert not torch.equal(env.timing.inference_delay, delay)
    assert make(PENDULUM, 2).timing is None
    assert set(TIMING) <= set(FIELDS)

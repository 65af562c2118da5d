"""MuJoCo Warp beside the C engine, on the CPU."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.backends import resolve_device
from andante.sim.env import Env
from andante.sim.spec.randomization import Randomization, Uniform
from andante.sim.tasks import get_task
from andante.train import learn as life
from andante.train.checkpoint import load_run
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.divergence import Divergence
from andante.train.ppo import PPO
from andante.train.replay import replay_divergence

pytest.importorskip("mujoco_warp")

from andante.sim.backends import warp

QUADRUPED, PENDULUM = "quadruped-velocity", "pendulum-swingup-blind"
HOVER = get_task("quadrotor-hover").spec
EVERYTHING = Randomization(
    mass={"*": Uniform(low=0.7, high=1.4)},
    center_of_mass={"trunk": Uniform(low=-0.03, high=0.03)},
    friction={"*": Uniform(low=0.2, high=0.6, shared=True)},
    kp={"*": Uniform(low=0.7, high=1.3)},
    kd={"*": Uniform(low=0.7, high=1.3)},
    motor_strength={"*": Uniform(low=0.7, high=1.3)},
    armature={"*": Uniform(low=0.7, high=1.4)},
    damping={"*": Uniform(low=0.5, high=2.0)},
    gravity_tilt=Uniform(low=-0.2, high=0.2),
    zero_offset={"*": Uniform(low=-0.05, high=0.05)},
)


def pair(name: str, worlds: int, randomization=None, **changes) -> tuple[Env, Env]:
    """The same worlds in both engines, at the start of their first episodes."""
    task = get_task(name)
    task = dataclasses.replace(task, spec=dataclasses.replace(task.spec, **changes))
    envs = tuple(
        Env(task, worlds, seed=1, randomization=randomization, device=device)
        for device in ("cpu", "warp-cpu")
    )
    for env in envs:
        env.reset()
    return envs


def actions(env: Env, n: int, seed: int = 0, scale: float = 0.2) -> torch.Tensor:
    spec = env.spec
    low, high, middle = (torch.tensor(v) for v in (spec.action_low, spec.action_high, spec.action_middle))
    noise = torch.randn(env.num_worlds, n, len(low), generator=torch.Generator().manual_seed(seed))
    return (middle + scale * (high - low) / 2 * noise).clamp(low, high)


def states(env: Env) -> torch.Tensor:
    return env.state_dict()["state"]


def put(env: Env, world: int, column: int, value: float) -> None:
    saved = env.state_dict()
    saved["state"][world, column] = value
    env.load_state_dict(saved)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (QUADRUPED, {"control_period_ns": 5_000_000, "decimation": 1}),
        ("quadrotor-hover", {"actions": (replace(HOVER.actions[0], joints=HOVER.actions[0].joints[::-1]),)}),
        (PENDULUM, {"integrator": "Euler"}),
        (PENDULUM, {"integrator": "RK4"}),
    ],
)
def test_one_step_from_the_same_states_agrees_to_1e_4(name, changes):
    exact, single = pair(name, 16, **changes)
    nq = exact._backend.model.nq
    for step in range(60):
        before, chosen = states(exact), actions(exact, 1, step)
        expected = exact._backend.advance(before, chosen)
        found = single._backend.advance(before, chosen)
        error = (found.states - expected.states).abs()
        assert error[..., : 1 + nq].max() < 1e-6
        assert error[..., 1 + nq :].max() < 1e-4
        scale = 1 + expected.sensors.abs()
        assert torch.all((found.sensors - expected.sensors).abs() / scale < 1e-4)
        exact.step(chosen)
    if name == QUADRUPED:
        assert states(exact)[:, 3].median() < 0.32, "no foot on the ground"


def test_fresh_worlds_sense_what_they_sense_in_the_c_engine():
    exact, single = pair(QUADRUPED, 4)
    state, worlds = states(exact)[[3, 1]], torch.tensor([3, 1])
    state[:, 3] = torch.tensor([0.25, 0.5])
    single.step(actions(single, 1))
    expected, found = exact._backend.sense(state, worlds), single._backend.sense(state, worlds)
    assert torch.all((found - expected).abs() / (1 + expected.abs()) < 1e-4)


def test_two_seconds_of_random_actions_have_the_same_statistics():
    """Means over worlds and ticks, to a tenth of the worlds' standard deviation: sqrt(16) / 10 = 0.4 of what
    the mean of independent worlds would scatter."""
    figures = []
    for env in pair(QUADRUPED, 16):
        rewards, heights, speeds, falls = [], [], [], []
        for call in range(20):
            outcome = env.step(actions(env, 5, call))
            rewards.append(outcome.reward.mean(1))
            heights.append(states(env)[:, 3])
            speeds.append(states(env)[:, 20:].abs().mean(1))
            falls.append(outcome.terminated.sum(1))
        figures.append([torch.stack(each, 1).double().mean(1) for each in (rewards, heights, speeds, falls)])
    for expected, found in zip(*figures, strict=True):
        assert (found.mean() - expected.mean()).abs() <= 0.1 * expected.std()
    assert figures[0][1].std() > 0


def test_a_call_of_n_ticks_equals_n_calls_of_one_bit_for_bit():
    _, long = pair(QUADRUPED, 3)
    _, short = pair(QUADRUPED, 3)
    chosen = actions(long, 4)
    long.step(chosen)
    for i in range(4):
        short.step(chosen[:, i : i + 1])
    assert torch.equal(states(long), states(short))


def test_a_world_that_restarts_leaves_the_others_untouched():
    _, alone = pair(QUADRUPED, 4)
    _, restarting = pair(QUADRUPED, 4)
    saved = restarting.state_dict()
    saved["tick"][2] = restarting.spec.episode_ticks - 2
    restarting.load_state_dict(saved)
    others = torch.tensor([0, 1, 3])
    for call in range(3):
        chosen = actions(alone, 3, call)
        expected, found = alone.step(chosen), restarting.step(chosen)
        assert found.done.tolist() == [False, False, call == 0, False]
        assert torch.equal(states(alone)[others], states(restarting)[others])
        for name, value in expected.observation.sources.items():
            assert torch.equal(value[others], found.observation.sources[name][others])


def test_physics_of_its_own_takes_effect_in_each_world_as_in_the_c_engine():
    exact, single = pair(QUADRUPED, 8, EVERYTHING)
    nominal, _ = pair(QUADRUPED, 8)
    nominal.load_state_dict({**nominal.state_dict(), "state": states(exact)})
    for call in range(3):
        chosen = actions(exact, 1, call)
        single.load_state_dict({**single.state_dict(), "state": states(exact)})
        for env in (exact, single, nominal):
            env.step(chosen)
        assert (states(single) - states(exact)).abs().max() < 1e-3
    assert torch.all((states(nominal) - states(exact)).abs().amax(1) > 0.03)


@pytest.mark.parametrize("field", EVERYTHING.__struct_fields__[:8])
def test_arrays_that_follow_from_a_field_follow_in_every_world(field):
    """At the start of all worlds, and when one of them begins another episode."""
    chosen = Randomization(**{field: getattr(EVERYTHING, field)})
    exact, single = pair(QUADRUPED, 3, chosen)
    for _ in range(2):
        for name in (*warp.DERIVED, "body_mass", "geom_friction", "actuator_gainprm", "actuator_biasprm"):
            found = single._backend._own(name)
            expected = torch.stack([torch.tensor(getattr(model, name)) for model in exact._backend.models])
            assert torch.allclose(found.double(), expected.reshape(found.shape), rtol=1e-5, atol=1e-7), name
        for env in (exact, single):
            saved = env.state_dict()
            saved["tick"][1] = env.spec.episode_ticks - 1
            env.load_state_dict(saved)
            assert env.step(actions(env, 1)).done.tolist() == [False, True, False]


def test_arrays_that_are_written_after_the_first_call_take_effect():
    exact, single = pair(QUADRUPED, 2)
    exact._backend.separate()
    single._backend.separate()
    before, chosen = states(exact), actions(exact, 1)
    nominal = single._backend.advance(before, chosen).states.clone()
    gains = 2.0 * exact._backend.model.actuator_gainprm[None]
    for env in (exact, single):
        env._backend.write([1], {"actuator_gainprm": gains})
    expected = exact._backend.advance(before, chosen).states
    found = single._backend.advance(before, chosen).states
    assert (found - expected).abs().max() < 1e-3
    assert torch.equal(found[0], nominal[0]) and (found[1] - nominal[1]).abs().max() > 0.1


def test_pushes_act_on_their_tick_alone():
    exact, single = pair(QUADRUPED, 2)
    body, chosen = exact._backend.model.body("trunk").id, actions(exact, 2)
    force = torch.zeros(2, 2, 6)
    force[1, 1] = torch.tensor([80.0, -40.0, 0.0, 1.0, 2.0, 3.0])
    before = states(exact)
    expected = exact._backend.advance(before, chosen, {body: force}).states.clone()
    found = single._backend.advance(before, chosen, {body: force}).states.clone()
    calm = single._backend.advance(before, chosen).states
    assert (found - expected).abs().max() < 1e-3
    assert torch.equal(found[0], calm[0]) and torch.equal(found[1, 0], calm[1, 0])
    assert (found[1, 1] - calm[1, 1]).abs().max() > 0.1


def stand_one_fly_three(monkeypatch, room: tuple[int, int]) -> Env:
    """World 0 on the ground, the others above it, with little room for contacts and constraints."""
    monkeypatch.setattr(warp, "room", lambda model, pairs: room)
    _, env = pair(QUADRUPED, 4)
    saved = env.state_dict()
    saved["state"][:, 3] = torch.tensor([0.25, 3.0, 3.0, 3.0])
    env.load_state_dict(saved)
    return env


@pytest.mark.parametrize("room", [(8, 8), (1, 64)], ids=["constraints", "contacts"])
def test_a_world_without_room_for_its_contacts_ends_alone_and_is_counted(monkeypatch, room):
    env = stand_one_fly_three(monkeypatch, room)
    if room[0] == 1:
        saved = env.state_dict()
        saved["state"][0, 3] = 0.02  # trunk and feet touch: more contacts than four worlds have room for
        env.load_state_dict(saved)
    outcome = env.step(actions(env, 3))
    assert outcome.diverged is not None
    assert outcome.diverged.any(1).tolist() == [True, False, False, False]
    assert outcome.done.tolist() == [True, False, False, False]
    assert outcome.critic.isfinite().all()
    assert env.diverged == 1
    assert states(env)[0, 3] > 0.3
    assert env.step(actions(env, 1)).diverged is None


def test_physics_that_leaves_all_bounds_ends_its_world_alone():
    _, env = pair(QUADRUPED, 4)
    _, calm = pair(QUADRUPED, 4)
    put(env, 1, 30, 9e5)
    chosen = actions(env, 2)
    outcome = env.step(chosen)
    calm.step(chosen)
    assert outcome.diverged is not None
    assert outcome.diverged.any(1).tolist() == [False, True, False, False]
    assert env.diverged == 1
    others = torch.tensor([0, 2, 3])
    assert torch.equal(states(env)[others], states(calm)[others])
    assert states(env).isfinite().all()


def test_a_saved_state_continues_in_the_same_engine_and_in_the_other():
    _, env = pair(QUADRUPED, 2, EVERYTHING)
    env.step(actions(env, 2))
    saved, chosen = env.state_dict(), actions(env, 2, 1)
    expected = env.step(chosen)
    for device, bound in (("warp-cpu", 0.0), ("cpu", 1e-3)):
        other = Env(env.task, 2, seed=9, randomization=EVERYTHING, device=device)
        other.reset()
        other.load_state_dict(saved)
        other.step(chosen)
        assert (states(other) - states(env)).abs().max() <= bound
    assert expected.valid.all()


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", "device 'gpu': expected auto, cpu, cuda, cuda:N or warp-cpu"),
        ("cuda:x", "device 'cuda:x': expected auto"),
        ("cuda:99", "device 'cuda:99': torch finds"),
    ],
)
def test_a_device_that_there_is_not_is_refused_in_one_line(device, said):
    with pytest.raises(AndanteError, match=said) as error:
        make(PENDULUM, 2, device=device)
    assert "\n" not in str(error.value)


def test_auto_takes_cuda_where_there_is_one():
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_script_for_gpus_says_in_one_line_that_there_is_none():
    script = Path(__file__).parents[1] / "bench/gpu.sh"
    ran = subprocess.run(
        [script], capture_output=True, text=True, env=os.environ | {"PYTHON": sys.executable}
    )
    assert ran.returncode == 1 and not ran.stdout
    assert ran.stderr.splitlines() == [
        f"bench/gpu: device 'cuda': torch finds 0 CUDA devices (torch {torch.__version__})"
    ]


def test_a_task_without_physics_refuses_a_device():
    with pytest.raises(AndanteError, match="task 'tmaze' has no physics of ours: it runs on 'cpu'"):
        make("tmaze", 2, device="warp-cpu")


def test_training_runs_on_the_engine_of_gpus_and_is_judged_on_the_other(tmp_path, monkeypatch):
    for module in ("learn", "selection"):
        monkeypatch.setattr(f"andante.train.{module}.EPISODES", 2)
    config = TrainConfig(
        task=PENDULUM,
        ticks=2 * 4 * 2 * 5,
        policy=PolicyConfig(hidden_size=8),
        ppo=PPOConfig(decisions=2, epochs=1, minibatches=2, critic_size=8),
        num_worlds=4,
        device="warp-cpu",
        evaluations=1,
    )
    trainer = PPO.from_config(config)
    monkeypatch.delattr(warp, "WarpBackend")  # evaluations do without
    assert life.learn(trainer, config, tmp_path / "run")
    assert trainer.iteration == 2
    run = load_run(tmp_path / "run")
    assert run.provenance["train.device"] == "warp-cpu"
    assert run.result is not None and run.config == config


def test_what_diverged_in_training_diverges_again_in_the_same_engine(tmp_path):
    config = TrainConfig(
        task=QUADRUPED,
        ticks=100,
        policy=PolicyConfig(hidden_size=8),
        ppo=PPOConfig(decisions=2, epochs=1, minibatches=2, critic_size=8),
        num_worlds=4,
        device="warp-cpu",
    )
    trainer = PPO.from_config(config)
    put(trainer.env, 3, 30, 9e5)
    start = life._copy(trainer.state_dict())
    trainer.iterate()
    dump = Divergence.find(trainer, config, start)
    assert dump is not None and dump.world == 3
    dump.write(tmp_path / "diverged.pt")
    read = Divergence.read(tmp_path / "diverged.pt")
    assert read is not None and read.device == "warp-cpu"
    assert len(replay_divergence("diverged.pt", read).rewards) >= 1

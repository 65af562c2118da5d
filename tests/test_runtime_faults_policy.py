"""The fault matrix, the policy's side: late or failing inference, swaps, restarts, joints that do not fit."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from faults.figure import Attendant, FakeClock, figure_policy
from faults.steps import Speller, expected_targets, spell
from faults.trial import (
    AT,
    FOREVER,
    LOST,
    NAN,
    PERIOD_NS,
    ROBOTS,
    RUN,
    UNGUARDED,
    Bench,
    Q,
    changed_profile,
    drive,
    fault,
    press,
    rest,
    run,
    same,
    wishes_until,
)

from andante.doctor.null_robot import NullRobot
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError, ProfileError
from andante.runtime.loop import RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.profile import check_fit
from andante.runtime.states import State
from andante.runtime.worker import Worker


@pytest.fixture(scope="module", params=ROBOTS)
def bench(request, tmp_path_factory):
    return Bench.of(request.param, tmp_path_factory.mktemp(request.param))


class ScriptedWorker(Worker):
    """Answers as late as the script says: ticks by the decision's number."""

    immediate = False

    def __init__(self, policy, lateness):
        super().__init__(policy)
        self.lateness = lateness
        self.asked = -1

    def request(self, tick, epoch):
        super().request(tick, epoch)
        self.asked += 1
        self.left = self.lateness.get(self.asked, 0)

    @property
    def ready(self):
        """Asked once a tick."""
        self.left -= 1
        return self._done and self.left < 0

    left = 0


WAITING = {
    # lateness, decisions lost, then by robot the commands, the reason and refused chunks.
    "late once": ({3: 2}, {9}, (("stand 1, policy 149", None), ("stand 1, policy 149", None)), 1),
    "slower than the chunk": (
        dict.fromkeys(range(3, 99), 8),
        range(9, 99),
        (("stand 1, policy 14, crouch 75, damp", 15), ("stand 1, policy 16, crouch 50, damp", 17)),
        0,
    ),
    "never answers": (
        dict.fromkeys(range(3, 99), FOREVER),
        range(9, 99),
        (("stand 1, policy 14, crouch 75, damp", 15), ("stand 1, policy 16, crouch 50, damp", 17)),
        0,
    ),
    "never has": (
        dict.fromkeys(range(99), FOREVER),
        range(99),
        (("stand 4, crouch 75, damp", 4), ("stand 6, crouch 50, damp", 6)),
        0,
    ),
}


@pytest.mark.parametrize("name", WAITING)
def test_inference_that_is_late(bench, name):
    """The chunk before plays its tail, its last action is held, and then it is starvation."""
    lateness, lost, expected, refused = WAITING[name]
    found = run(bench, worker=lambda policy: ScriptedWorker(policy, lateness), delay=1, lost=lost)
    commands, tick = expected[ROBOTS.index(bench.robot)]
    if tick is None:
        assert found.spelt.startswith(commands) and found.report.faults == ()
    else:
        assert rest(found.spelt, commands)
        starved = f"starvation: no chunk covers tick {RUN[bench.robot] + tick}"
        assert found.report.faults == (starved,)
    assert found.report.refused == refused


def test_inference_that_raises_is_damped_with_its_reason(bench, monkeypatch):
    def touchy(policy):
        infer = policy.infer

        def checked():
            if policy.flat_inputs[0] > 50.0:
                raise ValueError("bad\nweights")
            return infer()

        monkeypatch.setattr(policy, "infer", checked)

    for session in (bench.policy, bench.twin):
        touchy(session)
    found = run(bench, [fault("set", UNGUARDED[bench.robot], 60.0)], lost={9}, seconds=0.5)
    assert rest(found.spelt, "policy 9, damp")
    assert found.report.faults == (r"non_finite: the policy failed: ValueError('bad\nweights')",)


def test_a_swap_in_mid_chunk_waits_for_the_decision_and_blends(bench, tmp_path):
    path = tmp_path / "other.onnx"
    other = figure_policy(path, bench.robot, seed=5)
    plain = run(bench, seconds=0.5)
    found = run(bench, deeds={AT: lambda c: c.swap(load_policy(path))}, told=False, seconds=0.5)
    first = RUN[bench.robot]
    assert all(
        same(moment.command, old.command)
        for moment, old in zip(found.log[: first + 9], plain.log, strict=False)
    )
    new = found.log[first + 9 : first + 25]
    speller = Speller(bench.profile, other)
    wanted = expected_targets(new, other)
    last = new[0].sample.values["joint_position"]  # the drives are perfect
    for i, moment in enumerate(new):
        target = np.clip(wanted[moment.tick][speller.columns], *speller.trained)
        share = max(0, 5 - i) / 6
        np.testing.assert_allclose(moment.command.q, share * last + (1 - share) * target, atol=1e-6)
    assert found.report.faults == () and found.log.controller.counters.starved == 0


@pytest.mark.parametrize(
    ("at", "how", "reason"),
    [
        (8, press, "e_stop: red button"),  # the new policy waits for its first decision
        (10, press, "e_stop: red button"),  # it is taking over
        (20, press, "e_stop: red button"),
    ],
)
def test_an_emergency_stop_around_a_swap_damps_at_once_and_the_new_policy_runs_next(
    bench, tmp_path, at, how, reason
):
    path = tmp_path / "other.onnx"
    other = figure_policy(path, bench.robot, seed=5)
    found = run(
        bench,
        wishes=wishes_until(at, None, how),
        deeds={AT: lambda c: c.swap(load_policy(path))},
        told=False,
        seconds=0.5,
    )
    modes = [moment.command.mode for moment in found.log[RUN[bench.robot] :]]
    assert modes == ["track"] * at + ["damping"] * (len(modes) - at)
    assert found.report.faults == (reason,)
    controller = found.log.controller
    controller.clear()
    again = drive(controller, RUN[bench.robot] + 20)
    assert controller.policy.digest == other.digest
    assert all(map(same, again, drive(Controller(other, bench.profile), RUN[bench.robot] + 20)))


def test_a_new_policy_that_is_not_finite_is_damped_at_its_first_decision(bench, tmp_path):
    path = tmp_path / "other.onnx"
    figure_policy(path, bench.robot, seed=5)
    found = run(
        bench,
        [fault("set", UNGUARDED[bench.robot], 100.0)],
        deeds={AT: lambda c: c.swap(load_policy(path))},
        told=False,
        seconds=0.5,
    )
    modes = [moment.command.mode for moment in found.log[RUN[bench.robot] :]]
    assert modes == ["track"] * 9 + ["damping"] * (len(modes) - 9)
    assert found.report.faults == ("non_finite: the policy's chunk or memory is not finite",)


def test_direct_calls_and_the_loop_give_bit_equal_commands(bench):
    looped = run(bench, seconds=1.0)
    direct = drive(Controller(bench.twin, bench.profile), RUN[bench.robot] + 50)
    assert all(same(moment.command, command) for moment, command in zip(looped.log, direct, strict=False))
    assert [moment.state for moment in looped.log[RUN[bench.robot] :][:50]] == [State.RUN] * 50


FAULTS = {
    "stale_source": [LOST],
    "non_finite": [NAN],
    "tilt": [fault("set", "orientation", 0.5, ticks=1)],
    "limit": [fault("set", Q, 2.95, ticks=5)],
}


def never(policy):
    return ScriptedWorker(policy, dict.fromkeys(range(3, 99), FOREVER))


@pytest.mark.parametrize("cause", [*FAULTS, "e_stop", "overrun", "starvation"])
def test_a_run_after_a_fault_is_bit_equal_to_a_first_one(bench, cause):
    wishes = wishes_until(AT, None, press) if cause == "e_stop" else None
    late_ns = {AT: 500 * PERIOD_NS} if cause == "overrun" else None
    starves = {"worker": never, "delay": 1, "lost": range(9, 99)} if cause == "starvation" else {}
    found = run(bench, FAULTS.get(cause, []), wishes, late_ns, seconds=0.5, **starves)
    controller = found.log.controller
    assert controller.state is State.FAULT and controller.fault.startswith(f"{cause}: ")
    with pytest.raises(AndanteError, match="cannot activate in state FAULT"):
        controller.activate()
    controller.clear()
    again = drive(controller, RUN[bench.robot] + 50)
    assert all(map(same, again, drive(Controller(bench.twin, bench.profile), RUN[bench.robot] + 50)))


def renamed(contract, old: str, new: str):
    """The same contract, with another name for a joint."""

    def names(joints):
        return tuple(new if joint == old else joint for joint in joints)

    sources = tuple(msgspec.structs.replace(s, joints=names(s.joints)) for s in contract.sources)
    actions = tuple(msgspec.structs.replace(a, joints=names(a.joints)) for a in contract.actions)
    return msgspec.structs.replace(contract, sources=sources, actions=actions)


def test_a_renamed_joint_is_refused_by_name(bench):
    joint = bench.profile.joint_names[3]
    with pytest.raises(ProfileError, match=r"reads joint 'arm', which the profile lacks; joints: .*more"):
        check_fit(renamed(bench.policy.contract, joint, "arm"), bench.profile)


def test_a_joint_that_the_robot_lacks_is_refused_by_name(bench, tmp_path):
    joint = bench.profile.joint_names[3]

    def remove(content):
        content["joints"] = [each for each in content["joints"] if each["name"] != joint]
        for table in [*content["keyframes"].values(), *(g[k] for g in content["gains"].values() for k in g)]:
            del table[joint]

    with pytest.raises(ProfileError, match=f"joint '{joint}', which the profile lacks"):
        Controller(bench.twin, changed_profile(bench, tmp_path, remove))


def test_a_robot_of_another_joint_order_gets_the_same_command_by_joint(bench, tmp_path):
    random = np.random.default_rng(0)

    def permute(content):
        random.shuffle(content["joints"])

    profile = changed_profile(bench, tmp_path, permute)
    order = [profile.joint_names.index(joint) for joint in bench.profile.joint_names]
    assert order != sorted(order)
    permuted = drive(Controller(bench.twin, profile), RUN[bench.robot] + 50)
    for command, other in zip(
        drive(Controller(bench.policy, bench.profile), len(permuted)), permuted, strict=True
    ):
        np.testing.assert_allclose(command.rows, other.rows[:, order], atol=1e-6)


def test_a_robot_that_is_not_there_stands_upright_however_its_sensors_are_mounted(bench):
    """So that the timing of every shipped robot's policy can be tried."""
    robot = NullRobot(bench.policy.contract, bench.profile)
    controller = Controller(bench.policy, bench.profile)
    report = RealtimeLoop(controller, robot, clock=FakeClock(), operator=Attendant()).run(0.2)
    assert (report.faults, report.state) == ((), "disabled")


def test_a_swap_at_a_stale_decision_plays_the_old_tail_until_the_next_sound_tick(bench, tmp_path):
    path = tmp_path / "other.onnx"
    figure_policy(path, bench.robot, seed=5)
    missing = fault("drop", "joint_position", ticks=3)
    found = run(bench, [missing], deeds={AT: lambda c: c.swap(load_policy(path))}, told=False, seconds=0.5)
    before = found.log[: RUN[bench.robot] + 10]
    labels = Speller(bench.profile, bench.policy).labels(before, expected_targets(before, bench.twin))
    assert spell(labels[RUN[bench.robot] :]) == "policy 10"
    assert [moment.asked[0] for moment in found.log[RUN[bench.robot] + 8 :][:3]] == [3, 3, 4]
    assert found.report.faults == ()

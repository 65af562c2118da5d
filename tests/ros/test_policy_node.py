"""The policy node alone. A test publisher measures a pendulum that stands at 2 rad, but turns at 1 rad/s.

The blind policy does not read that velocity, but the profile's damping does: its every command is -0.2 N m.
So the stream shows who gave a command.
"""

from __future__ import annotations

import math
import signal
import threading
import time

import numpy as np
import pytest
from andante_ros.policy_node import unused
from nodes import eventually

from andante.runtime.policy import load_policy
from andante.runtime.recorder.recording import read_recording
from andante.runtime.recorder.replay import replay

PENDULUM = {"name": ["hinge"], "position": [2.0], "velocity": [1.0]}
DAMPING = -0.2
STOP_TICKS = 50
"""The stop sequence of the shipped profile: damping for 1 s at 50 Hz."""
FIVE_DECISIONS = 25


def is_damping(efforts: list[float]) -> np.ndarray:
    return np.isclose(efforts, DAMPING, atol=1e-9)


def policy_efforts(efforts: list[float]) -> list[float]:
    """What comes after the start sequence."""
    damping = is_damping(efforts)
    return [] if damping.all() else efforts[int(np.argmin(damping)) :]


def first_policy_efforts(client) -> list[float]:
    """The commands of the first five decisions after an activation; once more where the machine stalled."""
    for _ in range(5):
        client.commands.clear()
        assert client.activate()
        eventually(lambda: len(policy_efforts(client.efforts())) >= FIVE_DECISIONS, "commands of the policy")
        assert client.deactivate()
        client.await_state("disabled")
        if client.diagnostics["missed"] == client.diagnostics["dropped"] == "0":
            return policy_efforts(client.efforts())[:FIVE_DECISIONS]
    pytest.fail("ticks were missed in each of five activations")


def assert_the_stop_sequence_came_last(client) -> None:
    time.sleep(0.3)  # what is under way still arrives
    efforts = client.efforts()
    assert is_damping(efforts[-STOP_TICKS:]).all()
    assert not is_damping(efforts[-STOP_TICKS - 1 :]).all()


def refusal(client, node) -> str:
    """The one line that says why the node does not configure."""
    assert not client.configure()
    [line] = node.log.splitlines()
    assert "ERROR" in line
    return line


@pytest.fixture
def configured(client, start):
    client.measure(**PENDULUM)
    node = start("policy_node")
    assert client.configure()
    return node


@pytest.fixture
def running(client, configured):
    assert client.activate()
    client.await_state("run")
    return configured


def test_reactivation_begins_with_the_memory_of_a_fresh_process(client, start, configured):
    first = first_policy_efforts(client)
    again = first_policy_efforts(client)
    configured.end_by(signal.SIGINT)
    start("policy_node")
    assert client.configure()
    fresh = first_policy_efforts(client)
    assert again == first
    assert fresh == first
    assert first[20] != first[0], "the memory makes no difference: this test proves nothing"


def test_joints_are_found_by_name_among_others(client, configured):
    plain = first_policy_efforts(client)
    client.measure(name=["elbow", "hinge", "wrist"], position=[0.1, 2.0, -0.3], velocity=[7.0, 1.0, 8.0])
    assert first_policy_efforts(client) == plain


def test_nothing_is_sent_before_activation_and_after_deactivation(client, running):
    assert client.deactivate()
    assert_the_stop_sequence_came_last(client)
    client.commands.clear()
    time.sleep(0.3)
    assert client.commands == []
    assert client.cleanup()
    assert client.configure()
    time.sleep(0.3)
    assert client.commands == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_last_commands_before_a_signal_ends_the_process_are_the_stop_sequence(client, running, number):
    assert running.end_by(number) == 0
    assert_the_stop_sequence_came_last(client)


def test_a_message_without_our_joint_is_refused_and_the_joint_named(client, configured):
    client.measure(name=["elbow"], position=[2.0], velocity=[1.0])
    assert client.activate()
    eventually(
        lambda: "lacks joint 'hinge'" in client.diagnostics.get("refused message", ""), "diagnostics of it"
    )
    assert client.diagnostics["state"] == "wait_sensors"
    client.measure(name=["hinge"], position=[2.0])
    time.sleep(0.5)
    assert client.diagnostics["state"] == "wait_sensors", "started without the velocity that damping needs"
    client.measure(**PENDULUM)
    client.await_state("run")


def test_every_tick_of_every_configuring_is_recorded_and_runs_again(client, start, policy, tmp_path):
    client.measure(**PENDULUM)
    start("policy_node", record=tmp_path / "run.mcap")
    for _ in range(2):
        assert client.configure()
        assert client.activate()
        client.await_state("run")
        assert client.deactivate()
        assert client.cleanup()
    recordings = sorted(tmp_path.glob("*.mcap"))
    assert [path.name for path in recordings] == ["run.2.mcap", "run.mcap"]
    for path in recordings:
        recorded = replay(read_recording(path), load_policy(policy))
        assert recorded.equal and recorded.ticks > STOP_TICKS


def test_no_recording_or_part_of_one_is_written_over(tmp_path):
    path = tmp_path / "run.mcap"
    found = []
    for made in ("run.mcap", "run.2-2.mcap", "run.3.mcap", "running.mcap"):
        found.append(unused(path).name)
        (tmp_path / made).touch()
    assert [*found, unused(path).name] == ["run.mcap", "run.2.mcap", "run.3.mcap", "run.4.mcap", "run.4.mcap"]


@pytest.mark.parametrize("name", ["run", "run[1].mcap"])
def test_any_name_of_a_recording_has_an_unused_one_after_it(tmp_path, name):
    stem, dot, suffix = name.partition(".")
    (tmp_path / f"{stem}-2{dot}{suffix}").touch()
    (tmp_path / f"{stem}-slow{dot}{suffix}").touch()
    assert unused(tmp_path / name).name == f"{stem}.2{dot}{suffix}"
    (tmp_path / f"{stem}.2{dot}{suffix}").symlink_to(tmp_path / "gone")
    assert unused(tmp_path / name).name == f"{stem}.3{dot}{suffix}"


def test_place_where_nothing_can_be_recorded_is_refused(client, start, tmp_path):
    found = refusal(client, start("policy_node", record=tmp_path / "nowhere" / "run.mcap"))
    assert "run.mcap: No such file or directory, cannot record" in found


def test_not_a_number_is_a_fault_and_never_leaves(client, running):
    client.measure(name=["hinge"], position=[math.nan], velocity=[1.0])
    client.await_state("fault")
    assert client.diagnostics["fault"] == "non_finite: joint_position of joint 'hinge' is not finite"
    before = len(client.commands)
    eventually(lambda: len(client.commands) > before + 10, "commands in FAULT")
    for command in client.commands:
        assert np.isfinite([*command.position, *command.velocity, *command.effort]).all()
    assert set(client.efforts()[before:]) == {-0.2}  # damping needs the velocity alone

    assert client.trigger("start").startswith("refused: cannot confirm")
    client.measure(**PENDULUM)
    assert client.trigger("clear_fault").startswith("cleared")
    client.await_state("disabled")
    assert client.trigger("start") == "the start sequence begins"
    client.await_state("run")


def test_a_latched_fault_refuses_activation_until_it_is_cleared(client, running):
    assert client.trigger("emergency_stop").startswith("the fallback")
    client.await_state("fault")
    assert client.deactivate()
    assert not client.activate()
    assert "a fault is latched (e_stop: ~/emergency_stop)" in running.log
    client.trigger("clear_fault")
    assert client.activate()


def test_an_emergency_stop_is_answered_while_the_node_deactivates(client, running):
    deactivation = threading.Thread(target=client.deactivate)
    deactivation.start()
    eventually(lambda: is_damping(client.efforts()[-3:]).all(), "the stop sequence")
    assert client.trigger("emergency_stop").startswith("the fallback")
    deactivation.join()
    eventually(lambda: "fault: e_stop: ~/emergency_stop" in running.log, "the fault in the log")


def test_a_second_signal_cuts_the_stop_sequence_short(client, running):
    running.send(signal.SIGINT)
    eventually(lambda: is_damping(client.efforts()[-3:]).all(), "the stop sequence")
    running.end_by(signal.SIGINT)
    assert "fault: e_stop: interrupted twice" in running.log


def test_the_operator_starts_and_stops(client, start, profile, tmp_path):
    asking = tmp_path / "asking.yaml"
    asking.write_text(profile.read_text().replace("confirm: false", "confirm: true"))
    start("policy_node", profile=asking)
    assert client.trigger("start") == "refused: the node is not configured"
    assert client.configure()
    assert client.trigger("start") == "refused: the node is not active"
    client.measure(**PENDULUM)
    assert client.activate()
    client.await_state("ready")
    time.sleep(0.3)
    assert is_damping(client.efforts()).all()
    assert client.trigger("start") == "asked to run the policy"
    client.await_state("run")
    assert client.trigger("stop") == "the stop sequence begins"
    client.await_state("disabled")
    assert_the_stop_sequence_came_last(client)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"policy": "nowhere.onnx"}, "nowhere.onnx"),
        ({"policy": "''"}, "parameter `policy` is empty"),
        ({"profile": "cartpole"}, "robot model 'pendulum', the profile for 'cartpole'"),
        ({"use_sim_time": True}, "use_sim_time must be false"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_one_line(client, start, parameters, named):
    assert named in refusal(client, start("policy_node", **parameters))


def test_a_profile_whose_damping_joint_states_cannot_carry_is_refused(client, start, profile, tmp_path):
    drive = tmp_path / "drive.yaml"
    drive.write_text(profile.read_text().replace("pd_loop: host", "pd_loop: drive"))
    assert "the output cannot carry kd" in refusal(client, start("policy_node", profile=drive))

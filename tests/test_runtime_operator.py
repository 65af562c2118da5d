"""Operators' devices: hold-to-run, the trained range, buttons, and what counts as an emergency stop."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import conftest
import numpy as np
import pytest
import yaml
from small_policy import small_contract, write_small_policy

from andante.doctor.null_robot import NullRobot
from andante.runtime.command import OperatorInput
from andante.runtime.contract import CommandComponent, Source
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.loop import RealtimeLoop
from andante.runtime.operator import command_components, open_operator
from andante.runtime.operator.base import deflect
from andante.runtime.operator.gamepad import Gamepad
from andante.runtime.operator.keyboard import HOLD_NS, PAIRS, Keyboard
from andante.runtime.operator.udp import REPEAT, SILENCE_NS, OperatorSender, UdpOperator
from andante.runtime.policy import load_policy
from andante.runtime.profile import SHIPPED, load_profile
from andante.runtime.states import State

pytestmark = pytest.mark.realtime

ANDANTE = Path(sys.executable).with_name("andante")

NOW_NS = 5 * 10**12
"""The sample's clock, which need not be this machine's."""
FORWARD = CommandComponent(name="forward", unit="m/s", low=-0.5, high=1.0)
TURN = CommandComponent(name="turn", unit="rad/s", low=-2.0, high=2.0)
HEIGHT = CommandComponent(name="height", unit="m", low=0.2, high=0.4, timeout_value=0.3)
COMPONENTS = (FORWARD, TURN, HEIGHT)


def wishes() -> OperatorInput:
    return OperatorInput(np.full(len(COMPONENTS), np.nan))


def ask(device, operator: OperatorInput, now_ns: int = NOW_NS) -> OperatorInput:
    device.poll(operator, now_ns)
    return operator


def buttons(operator: OperatorInput) -> tuple[bool, bool, str | None]:
    return operator.start, operator.stop, operator.e_stop


@pytest.mark.parametrize(
    ("component", "deflection", "expected"),
    [
        (FORWARD, 1.0, 1.0),
        (FORWARD, -1.0, -0.5),
        (FORWARD, 0.5, 0.5),
        (HEIGHT, 0.0, 0.3),
        (HEIGHT, 1.0, 0.4),
        (HEIGHT, -0.5, 0.25),
        (CommandComponent(name="v", unit="m/s", low=0.5, high=1.0), 0.0, 0.0),
        (CommandComponent(name="v", unit="m/s", low=0.5, high=1.0), 0.1, 0.5),
        (FORWARD, 2.0, 1.0),
    ],
)
def test_a_deflection_stays_in_the_trained_range_and_rests_at_the_timeout_value(
    component, deflection, expected
):
    assert deflect(component, deflection) == pytest.approx(expected)


def test_what_can_be_commanded_is_in_the_contract():
    assert command_components(small_contract()) == ()


def test_no_device_is_none_and_an_unknown_one_is_named():
    assert open_operator("none", COMPONENTS) is None
    with pytest.raises(
        AndanteError, match="no operator's device 'mouse'; devices: none, keyboard, gamepad, udp"
    ):
        open_operator("mouse", COMPONENTS)


@pytest.mark.parametrize("name", ["none:xyz", "none:", "keyboard:3"])
def test_a_device_that_takes_no_address_is_refused_with_one(name):
    with pytest.raises(AndanteError, match=f"no operator's device '{name}'; devices: "):
        open_operator(name, COMPONENTS)


@pytest.fixture
def terminal():
    """Both ends of a real terminal; the far one is the operator's."""
    ends = [open(end, "r+b", buffering=0) for end in pty.openpty()]  # noqa: PTH123, SIM115
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def keyboard(terminal):
    device = Keyboard(COMPONENTS, terminal[1].fileno())
    yield device
    device.close()


def press(terminal, keys: bytes) -> None:
    terminal[0].write(keys)
    assert select.select([terminal[1]], [], [], 10)[0]


def test_a_key_commands_while_it_repeats_and_the_timeout_value_when_released(terminal, keyboard):
    operator = ask(keyboard, wishes())
    assert operator.command.tolist() == [0.0, 0.0, 0.3]
    press(terminal, b"w")
    assert ask(keyboard, operator).command.tolist() == [1.0, 0.0, 0.3]
    for _ in range(3):
        time.sleep(0.6e-9 * HOLD_NS)
        press(terminal, b"w")
        assert ask(keyboard, operator, NOW_NS + 1).command[0] == 1.0
    assert (operator.command_ns, operator.heartbeat_ns) == (NOW_NS + 1, NOW_NS + 1)
    time.sleep(1.1e-9 * HOLD_NS)
    assert ask(keyboard, operator).command.tolist() == [0.0, 0.0, 0.3]


def test_keys_of_several_components_and_the_last_one_of_a_pair_count(terminal, keyboard):
    press(terminal, b"wsdqe?")
    assert ask(keyboard, wishes()).command == pytest.approx([-0.5, -2.0, 0.2])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (b"\n", (True, False, None)),
        (b"\r", (True, False, None)),
        (b"x", (False, True, None)),
        (b" ", (False, False, "space bar")),
        (b"w ", (False, False, "space bar")),
        (b"\x1b[A", (False, False, None)),
    ],
)
def test_keys_that_are_buttons_count_once(terminal, keyboard, keys, expected):
    press(terminal, keys)
    operator = wishes()
    assert buttons(ask(keyboard, operator)) == expected
    assert buttons(ask(keyboard, operator)) == (False, False, None)


@pytest.mark.parametrize("end", [0, 1])
def test_a_terminal_that_is_gone_is_an_emergency_stop_without_heartbeat(terminal, keyboard, end):
    operator = ask(keyboard, wishes(), 1)
    terminal[end].close()
    assert ask(keyboard, operator, 2).e_stop == "the keyboard's terminal is gone"
    assert (operator.command_ns, operator.heartbeat_ns) == (1, 1)
    assert ask(keyboard, operator, 3).e_stop is not None


def test_the_terminal_is_given_back_as_it_was(terminal):
    before = termios.tcgetattr(terminal[1])
    device = Keyboard(COMPONENTS, terminal[1].fileno())
    local = termios.tcgetattr(terminal[1])
    assert local[3] & termios.ICANON == 0 and local[0] & termios.IXON == 0
    assert local[6][termios.VSUSP] == b"\0" and local[3] & termios.ISIG
    device.close()
    assert termios.tcgetattr(terminal[1]) == before


def test_what_is_no_terminal_or_too_long_a_command_is_refused(terminal):
    with Path(os.devnull).open() as nothing, pytest.raises(AndanteError, match="needs a terminal"):
        Keyboard(COMPONENTS, nothing.fileno())
    many = tuple(CommandComponent(name=str(i), unit="1", low=-1, high=1) for i in range(len(PAIRS) + 1))
    with pytest.raises(AndanteError, match="the keyboard has 5 pairs of keys, the command 6"):
        Keyboard(many, terminal[1].fileno())


@pytest.fixture
def gamepad(tmp_path):
    """A device, and the end at which the kernel would write."""
    path = tmp_path / "js0"
    os.mkfifo(path)
    device = Gamepad(COMPONENTS, str(path))
    kernel = path.open("wb", buffering=0)
    yield device, kernel
    device.close()
    kernel.close()


def button(number: int, down: bool, initial: bool = False) -> bytes:
    return struct.pack("=IhBB", 0, down, 0x01 | (0x80 if initial else 0), number)


def axis(number: int, value: int) -> bytes:
    return struct.pack("=IhBB", 0, value, 0x02, number)


def test_the_sticks_count_only_while_the_hold_button_is_down(gamepad):
    device, kernel = gamepad
    operator = wishes()
    kernel.write(axis(1, -32767) + axis(0, 16384) + axis(3, 32767))
    assert ask(device, operator).command.tolist() == [0.0, 0.0, 0.3]
    kernel.write(button(4, True))
    assert ask(device, operator).command == pytest.approx([1.0, -1.0, 0.2], abs=1e-3)
    assert ask(device, operator, NOW_NS + 5).command[0] == 1.0
    assert (operator.command_ns, operator.heartbeat_ns) == (NOW_NS + 5, NOW_NS + 5)
    kernel.write(button(4, False))
    assert ask(device, operator).command.tolist() == [0.0, 0.0, 0.3]


def test_a_stick_near_its_middle_is_at_rest(gamepad):
    device, kernel = gamepad
    kernel.write(button(4, True) + axis(1, 3000) + axis(0, -4000))
    command = ask(device, wishes()).command
    assert command[0] == 0.0 and command[1] > 0.0


@pytest.mark.parametrize(
    ("number", "expected"),
    [(7, (True, False, None)), (6, (False, True, None)), (1, (False, False, "gamepad"))],
)
def test_buttons_count_when_pressed_but_not_when_already_down_at_the_beginning(gamepad, number, expected):
    device, kernel = gamepad
    operator = wishes()
    kernel.write(button(number, True, initial=True))
    held = ask(device, operator)
    assert not held.start and not held.stop
    assert held.e_stop == ("gamepad" if number == 1 else None)  # an emergency stop that is down is pressed
    kernel.write(button(number, False) + button(number, True) + button(number, False))
    assert buttons(ask(device, operator)) == expected
    assert buttons(ask(device, operator)) == (False, False, None)


def test_an_emergency_stop_lasts_while_its_button_is_down(gamepad):
    device, kernel = gamepad
    kernel.write(button(1, True))
    operator = wishes()
    assert [ask(device, operator).e_stop for _ in range(3)] == ["gamepad"] * 3


def test_an_unplugged_gamepad_is_an_emergency_stop_without_heartbeat(gamepad):
    device, kernel = gamepad
    operator = ask(device, wishes(), 1)
    kernel.write(button(4, True) + axis(1, -32767))
    kernel.close()
    assert ask(device, operator, 2).e_stop == "the gamepad is gone"
    assert (operator.command_ns, operator.heartbeat_ns) == (1, 1)
    assert operator.command.tolist() == [0.0, 0.0, 0.3]


def test_a_gamepad_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AndanteError, match="js7: No such file or directory, no gamepad"):
        open_operator(f"gamepad:{tmp_path}/js7", COMPONENTS)


@contextmanager
def sending(sender: OperatorSender, operator: OperatorInput):
    """Send the same again and again meanwhile."""
    enough = threading.Event()

    def repeat():
        while not enough.wait(0.02):
            sender.send(operator)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.fixture
def link(unused_address):
    """A sender, and what hears it."""
    sender = OperatorSender(COMPONENTS, unused_address)
    operator = OperatorInput(np.zeros(len(COMPONENTS)))
    with sending(sender, operator):
        device = UdpOperator(COMPONENTS, unused_address)
    yield sender, device
    sender.close()
    device.close()


@pytest.fixture
def unused_address():
    return conftest.free_addresses(1)[0]


def send(sender: OperatorSender, command=(0.0, 0.0, 0.3), **pressed) -> None:
    sender.send(OperatorInput(np.array(command), **pressed))


def test_a_command_comes_over_udp_clipped_to_the_trained_range(link):
    sender, device = link
    send(sender, (0.7, -9.0, 0.1))
    operator = ask(device, wishes())
    assert operator.command.tolist() == [0.7, -2.0, 0.2]
    assert NOW_NS - 10**9 < operator.command_ns == operator.heartbeat_ns <= NOW_NS
    send(sender, (np.nan, 0.0, 0.3))
    assert ask(device, operator).command.tolist() == [0.7, -2.0, 0.2]


def test_a_command_grows_old_when_no_other_comes(link):
    sender, device = link
    send(sender)
    operator = wishes()
    first = ask(device, operator).command_ns - time.monotonic_ns()
    time.sleep(0.05)
    later = ask(device, operator).command_ns - time.monotonic_ns()
    assert first - later >= 90_000_000  # both clocks went on, and this one's stood still


def test_a_press_survives_losses_and_counts_once(link):
    sender, device = link
    operator = wishes()
    send(sender, start=True)
    for _ in range(3):
        send(sender)
    assert buttons(ask(device, operator)) == (True, False, None)
    send(sender)
    assert buttons(ask(device, operator)) == (False, False, None)
    for _ in range(REPEAT):
        send(sender)
    ask(device, operator)
    send(sender, start=True, stop=True)
    assert buttons(ask(device, operator)) == (True, True, None)


def test_an_emergency_stop_is_sent_from_then_on_and_is_no_heartbeat(link):
    sender, device = link
    operator = ask(device, wishes(), 0)
    before = operator.heartbeat_ns
    send(sender, e_stop="space bar")
    for _ in range(2 * REPEAT):
        send(sender)
    assert ask(device, operator, 0).e_stop == "operator"
    assert operator.heartbeat_ns <= before


def test_a_silent_operator_is_an_emergency_stop(link):
    sender, device = link
    send(sender)
    operator = wishes()
    assert ask(device, operator).e_stop is None
    time.sleep(1.1e-9 * SILENCE_NS)
    assert ask(device, operator).e_stop.startswith("operator not heard for ")
    send(sender)
    assert ask(device, operator).e_stop is None


def test_an_operator_who_never_comes_is_told(unused_address):
    with pytest.raises(AndanteError, match=f"no operator heard at {unused_address} within 0.05 s"):
        UdpOperator(COMPONENTS, unused_address, wait_s=0.05)


def test_an_operator_of_another_command_is_not_heard(unused_address):
    sender = OperatorSender(tuple(reversed(COMPONENTS)), unused_address)
    expected = pytest.raises(AndanteError, match=r"no operator heard .*mismatched': [1-9]")
    with sending(sender, OperatorInput(np.zeros(3))), expected:
        UdpOperator(COMPONENTS, unused_address, wait_s=1.0)
    sender.close()


COMMAND = Source(name="command", kind="command", unit="", components=(FORWARD, TURN), max_age_ns=200_000_000)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy that can be told how to move."""
    path = tmp_path_factory.mktemp("operator") / "policy.onnx"
    return write_small_policy(path, sources=(*small_contract().sources, COMMAND))


@pytest.fixture
def profile(tmp_path):
    """The shipped one with an operator's confirmation, and sequences of 0.1 s."""
    content = yaml.safe_load((SHIPPED / "pendulum.yaml").read_text()) | {"confirm": True}
    for sequence in ("start", "stop"):
        content[sequence][0]["duration_s"] = 0.1
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def start(*words: str | Path, stdin=None) -> subprocess.Popen:
    """A process; `stdin` is a terminal that becomes its controlling one."""
    own_terminal = None if stdin is None else lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    return subprocess.Popen(
        [ANDANTE, *map(str, words)],
        text=True,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=own_terminal,
    )


def report_of(process: subprocess.Popen, path: Path) -> dict:
    _, err = process.communicate(timeout=60)
    assert err == ""
    return json.loads(path.read_text())


def test_the_loop_gives_the_controller_what_the_device_says(policy, profile, gamepad, tmp_path):
    _, kernel = gamepad
    device = Gamepad((FORWARD, TURN), str(tmp_path / "js0"))
    session = load_policy(policy)
    controller = Controller(session, load_profile(profile))
    robot = NullRobot(session.contract, controller.profile)
    log = []

    def observe(tick, sample, command, *_):
        log.append(
            (controller.state, sample.operator.command[0], sample.operator.heartbeat_ns == sample.now_ns)
        )
        if len(log) == 20:
            kernel.write(button(7, True) + button(4, True) + axis(1, -32767))
        if len(log) == 40:
            kernel.write(button(4, False))
        if len(log) == 50:
            kernel.close()

    loop = RealtimeLoop(controller, robot, operator=device, observers=[observe])
    report = loop.run(seconds=1.5)
    device.close()
    assert report.faults == ("e_stop: the gamepad is gone",)
    assert (log[19][0], log[22][0]) == (State.READY, State.RUN)
    assert [log[at][1] for at in (19, 22, 38, 45)] == [0.0, 1.0, 1.0, 0.0]
    assert all(fresh for _, _, fresh in log[:49])


def test_a_keyboard_starts_and_stops_a_run(policy, profile, terminal, tmp_path):
    path = tmp_path / "report.json"
    process = start(
        "run", policy, "--profile", profile, "--command", "keyboard", "--report", path, stdin=terminal[1]
    )
    hint = process.stdout.readline()
    assert hint.startswith(
        "ready; Enter starts, x stops, space is the emergency stop; hold w/s for forward; hold a/d"
    )
    terminal[0].write(b"\n")
    time.sleep(0.5)
    terminal[0].write(b"x")
    report = report_of(process, path)
    assert (process.returncode, report["state"], report["faults"]) == (0, "disabled", [])
    assert report["decisions"] > 0


@pytest.mark.parametrize(("keys", "reason"), [(b" ", "space bar"), (None, "the keyboard's terminal is gone")])
def test_the_space_bar_and_a_lost_terminal_stop_a_run_at_once(
    policy, profile, terminal, tmp_path, keys, reason
):
    path = tmp_path / "report.json"
    process = start(
        "run", policy, "--profile", profile, "--command", "keyboard", "--report", path,
        "--seconds", "3", stdin=terminal[1],
    )  # fmt: skip
    terminal[1].close()
    assert process.stdout.readline().startswith("ready; ")
    if keys:
        terminal[0].write(keys)
    else:
        terminal[0].close()
    report = report_of(process, path)
    assert (report["state"], report["faults"]) == ("fault", [f"e_stop: {reason}"])
    assert process.returncode == 1


def test_an_operator_in_another_process_starts_a_run_and_ends_it_by_dying(
    policy, profile, terminal, unused_address, tmp_path
):
    path = tmp_path / "report.json"
    command = f"udp:{unused_address}"
    run = start("run", policy, "--profile", profile, "--command", command, "--report", path, "--seconds", "3")
    operate = start("operate", policy, "--remote", unused_address, stdin=terminal[1])
    assert operate.stdout.readline().startswith("Enter starts")
    assert run.stdout.readline().startswith("ready; waiting")
    terminal[0].write(b"\n")
    time.sleep(0.7)
    operate.kill()
    operate.communicate()
    report = report_of(run, path)
    assert report["faults"][0].startswith("e_stop: operator not heard for ") and report["decisions"] > 0


def test_a_command_that_nobody_holds_is_not_sent_to_a_robot(policy):
    result = conftest.andante("operate", policy, "--command", "fixed:0.8,0,0")
    assert result.returncode == 1
    assert result.stderr == "andante: expected keyboard or gamepad, found 'fixed:0.8,0,0'\n"

"""The fault matrix of processes: simulator, controller and operator, each ended by every signal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml
from conftest import free_addresses
from small_policy import small_contract, write_small_policy

from andante.runtime.contract import CommandComponent, Source
from andante.runtime.profile import SHIPPED

pytestmark = pytest.mark.realtime

ANDANTE = Path(sys.executable).with_name("andante")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
COMMAND = Source(
    name="command",
    kind="command",
    unit="",
    components=(CommandComponent(name="forward", unit="m/s", low=-1.0, high=1.0),),
    max_age_ns=200_000_000,
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy that can be told how to move, patient with a busy machine."""
    path = tmp_path_factory.mktemp("processes") / "policy.onnx"
    contract = small_contract()
    sources = tuple(msgspec.structs.replace(source, max_age_ns=300_000_000) for source in contract.sources)
    return write_small_policy(path, sources=(*sources, COMMAND), max_gap_ticks=10)


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """The shipped pendulum, confirmed by an operator, with short sequences, as patient."""
    content = yaml.safe_load((SHIPPED / "pendulum.yaml").read_text()) | {"confirm": True}
    for sequence in ("start", "stop"):
        content[sequence][0]["duration_s"] = 0.1
    for quality in content["signals"].values():
        quality["max_age_s"] = 0.3
    for event in ("overrun", "starvation"):
        content["fallback"][event][0]["ticks"] = 1000
    path = tmp_path_factory.mktemp("profile") / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass
class Trio:
    """Three processes, while the policy runs."""

    simulator: subprocess.Popen
    controller: subprocess.Popen
    operator: subprocess.Popen
    report: Path

    def end(self, name: str) -> tuple[int, str]:
        """Wait for one; its exit status and the rest of what it said."""
        process = getattr(self, name)
        out, err = process.communicate(timeout=60)
        assert err == "" or name == "operator"
        return process.returncode, out


def start(*words: str | Path, stdin=subprocess.DEVNULL) -> subprocess.Popen:
    """A process; where `stdin` is a terminal it becomes its controlling one."""
    own_terminal = (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if stdin != subprocess.DEVNULL else None
    return subprocess.Popen(
        [ANDANTE, *map(str, words)],
        text=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=own_terminal,
    )


@pytest.fixture
def trio(policy, profile, tmp_path):
    here, there, listener = free_addresses(3)
    near, far = pty.openpty()
    report = tmp_path / "report.json"
    simulator = start("simulate", policy, "--profile", profile, "--local", there, "--remote", here)
    operator = start("operate", policy, "--remote", listener, stdin=far)
    controller = start(
        "run", policy, "--profile", profile, "--robot", "udp", "--robot-option", f"local={here}",
        f"remote={there}", "--command", f"udp:{listener}", "--seconds", 2, "--report", report,
    )  # fmt: skip
    try:
        assert simulator.stdout.readline().startswith("simulating pendulum")
        assert controller.stdout.readline().startswith("ready; ")
        assert simulator.stdout.readline() == "commands are valid\n"
        os.write(near, b"\n")
        time.sleep(0.5)
        yield Trio(simulator, controller, operator, report)
    finally:
        for process in (simulator, controller, operator):
            process.kill()
            process.communicate()
        os.close(near)
        os.close(far)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ended_simulator_is_a_stale_source_that_is_told(trio, number):
    trio.simulator.send_signal(number)
    status, out = trio.end("simulator")
    assert (status, out.startswith("datagrams: ")) == (
        (-number, False) if number == signal.SIGKILL else (0, True)
    )
    status, out = trio.end("controller")
    report = json.loads(trio.report.read_text())
    (fault,) = report["faults"]
    assert fault.startswith("stale_source: joint_position is ") and fault in out
    assert (status, report["state"], report["decisions"] > 0) == (1, "fault", True)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ended_controller_leaves_the_joints_damped(trio, number):
    trio.controller.send_signal(number)
    status, out = trio.end("controller")
    if number == signal.SIGKILL:
        assert (status, out, trio.report.exists()) == (-number, "", False)
    else:
        report = json.loads(trio.report.read_text())
        assert (status, report["state"], report["faults"], report["stopped"]) == (
            128 + number,
            "disabled",
            [],
            "asked to",
        )
        assert report["decisions"] > 0
    assert trio.simulator.stdout.readline() == "no valid command: damping\n"
    assert (trio.simulator.poll(), trio.operator.poll()) == (None, None)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ended_operator_is_an_emergency_stop(trio, number):
    trio.operator.send_signal(number)
    assert trio.end("operator")[0] == {signal.SIGINT: 130}.get(number, -number)
    status, out = trio.end("controller")
    report = json.loads(trio.report.read_text())
    (fault,) = report["faults"]
    assert fault.startswith("e_stop: operator not heard for ") and fault in out
    assert (status, report["state"], report["decisions"] > 0) == (1, "fault", True)
    assert trio.simulator.stdout.readline() == "no valid command: damping\n"
    assert trio.simulator.poll() is None

"""`andante run` as its user sees it: report, exit status, Ctrl-C, confirmation."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from browser import wait_for
from small_policy import write_small_policy

from andante.cli import main
from andante.runtime.profile import SHIPPED
from andante.runtime.recorder.recording import read_recording

pytestmark = pytest.mark.realtime

ANDANTE = Path(sys.executable).with_name("andante")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("run") / "policy.onnx")


def quick_profile(folder: Path, **changes) -> Path:
    """The shipped profile with sequences of 0.1 s, patience with a busy machine, and other changes."""
    content = yaml.safe_load((SHIPPED / "pendulum.yaml").read_text()) | changes
    content["fallback"]["overrun"][0]["ticks"] = 1000
    for sequence in ("start", "stop"):
        if sequence not in changes:
            content[sequence][0]["duration_s"] = 0.1
    path = folder / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def start(*words: str | Path, **options) -> subprocess.Popen:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([ANDANTE, "run", *map(str, words)], text=True, **pipes, **options)


def finish(process: subprocess.Popen, keys: str | None = None) -> tuple[int, str, str]:
    out, err = process.communicate(keys, timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("robot", ["null", "sim"])
def test_run_prints_and_writes_its_report(policy, tmp_path, robot):
    path, profile = tmp_path / "out.json", quick_profile(tmp_path)
    words = policy, "--robot", robot, "--profile", profile, "--seconds", "0.2", "--report", path
    status, out, err = finish(start(*words))
    assert (status, err) == (0, "")
    report = json.loads(path.read_text())
    assert report["state"] == "disabled" and report["faults"] == []
    assert report["ticks"] + report["missed"] >= 6 + 10 + 5
    assert report["decisions"] + report["dropped"] >= 2
    assert set(report["jitter_us"]) == set(report["step_us"]) == {"p50", "p99", "max"}
    assert f"ticks        {report['ticks']} ({report['missed']} missed" in out


def test_ctrl_c_stops_softly_and_still_reports(policy, tmp_path):
    path = tmp_path / "out.json"
    process = start(policy, "--report", path, "--profile", quick_profile(tmp_path, confirm=True))
    assert "press Enter" in process.stdout.readline()
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    status, out, _ = finish(process)
    assert status == 130
    assert "state        disabled" in out
    report = json.loads(path.read_text())
    assert report["faults"] == [] and report["decisions"] > 0


def test_second_interrupt_is_an_emergency_stop(policy, tmp_path):
    stop = [{"action": "damping", "gains": "damping", "duration_s": 50.0}]
    process = start(policy, "--profile", quick_profile(tmp_path, confirm=True, stop=stop))
    assert "press Enter" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    status, out, _ = finish(process)
    assert status == 1
    assert "faults       e_stop: operator interrupted twice" in out


def test_hangup_stops_softly_and_still_reports(policy, tmp_path):
    path = tmp_path / "out.json"
    process = start(policy, "--report", path, "--profile", quick_profile(tmp_path, confirm=True))
    assert "press Enter" in process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert finish(process)[0] == 128 + signal.SIGHUP
    report = json.loads(path.read_text())
    assert (report["state"], report["faults"]) == ("disabled", [])


def test_run_whose_output_nobody_reads_stops_and_says_so(policy, tmp_path):
    path = tmp_path / "out.json"
    process = start(policy, "--report", path, "--profile", quick_profile(tmp_path, confirm=True))
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert process.stderr.read() == "andante: cannot print the report (Broken pipe); faults: none\n"
    report = json.loads(path.read_text())
    assert (report["state"], report["faults"]) == ("disabled", [])
    assert report["stopped"] == "nobody reads the output"


def full_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    room = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    os.write(writer, b"x" * room)
    return reader, writer


def test_output_that_is_not_read_neither_stops_the_loop_nor_keeps_signals_from_ending_it(policy, tmp_path):
    path, profile = tmp_path / "out.json", quick_profile(tmp_path, confirm=True)
    reader, writer = full_pipe()
    process = subprocess.Popen(
        [ANDANTE, "run", policy, "--profile", profile, "--seconds", "0.5", "--report", path],
        stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for(path.exists, "the report")
        report = json.loads(path.read_text())
        assert (report["stopped"], report["state"], report["faults"]) == ("never confirmed", "disabled", [])
        for _ in range(60):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                break
        assert process.returncode == 1
        told = b"andante: cannot print the report (interrupted); faults: none\n"
        assert process.stderr.read() == told
    finally:
        process.kill()
        process.communicate()
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("closing", ["<&-", "</dev/null"])
def test_closed_input_confirms_nothing_and_is_told(policy, tmp_path, closing):
    words = ["run", policy, "--profile", quick_profile(tmp_path, confirm=True), "--seconds", "20"]
    command = f'exec "$0" "$@" {closing}'
    result = subprocess.run(
        ["sh", "-c", command, ANDANTE, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert result.stderr == "andante: nobody at standard input; --yes confirms without asking\n"
    assert (
        "stopped      nobody at standard input" in result.stdout and "state        disabled" in result.stdout
    )


def patched(code: str, *words: str | Path) -> tuple[int, str, str]:
    """`andante run` in a process where something is made to fail."""
    lines = "import os, signal, sys", code, "from andante.cli import main", "sys.exit(main())"
    command = [sys.executable, "-c", "\n".join(lines), "run", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout, result.stderr


CLOSING = """
from andante.sim.robot import SimRobot
def close(self):
    os.kill(os.getpid(), signal.SIGTERM)
    raise OSError("serial port is gone")
SimRobot.close = close
"""


def test_robot_that_cannot_be_closed_and_a_late_signal_lose_neither_report_nor_recording(policy, tmp_path):
    path, recording = tmp_path / "out.json", tmp_path / "rec.mcap"
    words = "--robot", "sim", "--fast", "--seconds", "1", "--report", path, "--record", recording
    status, out, err = patched(CLOSING, policy, *words)
    assert (status, err) == (1, "andante: cannot close robot 'sim': OSError('serial port is gone')\n")
    report = json.loads(path.read_text())
    assert report["state"] == "disabled" and f"ticks        {report['ticks']} (" in out
    assert f"recording    {recording} (0 ticks lost)" in out


OPENING = """
from {module} import {name}
opening = {name}.{method}
def opened(*arguments):
    found = opening(*arguments)
    os.kill(os.getpid(), signal.{number})
    return found
{name}.{method} = opened
"""


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_signal_while_the_robot_is_opened_leaves_nothing(policy, tmp_path, name, status):
    path, recording = tmp_path / "out.json", tmp_path / "rec.mcap"
    words = "--robot", "null", "--record", recording, "--report", path
    robot = {"module": "andante.doctor.null_robot", "name": "NullRobot", "method": "__init__"}
    found, out, err = patched(OPENING.format(**robot, number=name), policy, *words)
    assert (found, out, err) == (status, "", "andante: interrupted\n" if name == "SIGINT" else "")
    assert list(tmp_path.iterdir()) == []


def test_signal_while_the_recording_is_opened_stops_softly(policy, tmp_path):
    path, recording = tmp_path / "out.json", tmp_path / "rec.mcap"
    words = "--robot", "null", "--record", recording, "--report", path
    options = {"module": "andante.runtime.recorder.options", "name": "RecordingOptions", "method": "open"}
    status, out, err = patched(OPENING.format(**options, number="SIGTERM"), policy, *words)
    assert (status, err) == (143, "")
    assert f"recording    {recording} (0 ticks lost)" in out
    report = json.loads(path.read_text())
    assert (report["stopped"], report["state"]) == ("asked to", "disabled")
    assert read_recording(recording).damage is None


@pytest.mark.parametrize(
    "wrong",
    [
        ("--robot", "bender"),
        ("--command", "keyboard"),
        ("--command", "fixed:1"),
        ("--seconds", "nan"),
        ("--robot", "udp", "--robot-option", "local=nowhere.invalid:1", "remote=127.0.0.1:1"),
    ],
)
def test_failed_start_leaves_no_files_and_no_older_report(policy, tmp_path, wrong):
    path, recording = tmp_path / "out.json", tmp_path / "rec.mcap"
    path.write_text("old")
    words = policy, "--report", path, "--record", recording
    status, out, err = finish(start(*words, *wrong))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert [each.name for each in tmp_path.iterdir() if each != path] == []
    assert not path.exists() or wrong == ("--command", "fixed:1")  # which is told before anything is touched
    assert main(["run", *map(str, words), "--robot", "sim", "--fast", "--seconds", "0.1"]) == 0
    assert json.loads(path.read_text())["ticks"] > 0 and recording.exists()


def test_report_and_recording_cannot_be_one_file(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("x.mcap")
    for name in ("x.mcap", "link"):
        status, _, err = finish(start(policy, "--record", "x.mcap", "--report", name))
        assert (status, err) == (1, f"andante: {name}: asked for as report and as recording\n")
    assert [each.name for each in tmp_path.iterdir()] == ["link"]


def test_report_that_cannot_be_written_in_the_end_is_told_after_it_is_printed(policy, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    code = CLOSING.partition("def")[0] + (
        "read = SimRobot.read\n"
        f"def reading(self):\n    os.path.exists({str(folder)!r}) and os.rmdir({str(folder)!r})\n"
        "    return read(self)\n"
        "SimRobot.read = reading"
    )
    words = "--robot", "sim", "--fast", "--seconds", "1", "--report", folder / "out.json"
    status, out, err = patched(code, policy, *words)
    told = f"andante: {folder}/out.json: No such file or directory, cannot write the report\n"
    assert (status, err) == (1, told)
    assert "state        disabled" in out


def test_fault_exits_with_1_and_says_why(policy, tmp_path):
    joint = {"name": "hinge", "actuated": True, "sign": 1, "zero_offset": 0.0, "position": None}
    profile = quick_profile(tmp_path, joints=[joint | {"velocity": 1e-6, "effort": 0.7}])
    status, out, _ = finish(start(policy, "--robot", "sim", "--profile", profile, "--seconds", "0.2"))
    assert status == 1
    assert "faults       limit: joint_velocity of joint 'hinge' is" in out


@pytest.mark.parametrize(("options", "ran"), [(("--yes",), True), ((), False)])
def test_operator_confirms_where_the_profile_wants_it(policy, tmp_path, options, ran):
    profile = quick_profile(tmp_path, confirm=True)
    path = tmp_path / "out.json"
    process = start(policy, "--profile", profile, "--seconds", "0.5", "--report", path, *options)
    status, out, err = finish(process, "")
    report = json.loads(path.read_text())
    stopped = "time over" if ran else "nobody at standard input"
    assert (report["decisions"] > 0, report["stopped"], status) == (ran, stopped, 0 if ran else 1)
    assert ("press Enter" in out) == (not options)
    assert ("nobody at standard input; --yes confirms" in err) == (not ran)


def test_question_that_is_asked_again_after_a_gap_needs_one_answer(policy, tmp_path):
    path = tmp_path / "out.json"
    profile = quick_profile(tmp_path, confirm=True)
    process = start(policy, "--profile", profile, "--seconds", "1", "--report", path)
    assert "press Enter" in process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    assert "press Enter" in process.stdout.readline()
    status, _, err = finish(process, "\n")
    report = json.loads(path.read_text())
    assert (report["decisions"] > 0, report["stopped"], status, err) == (True, "time over", 0, "")


def test_a_policy_that_was_never_confirmed_is_no_success(policy, tmp_path):
    profile = quick_profile(tmp_path, confirm=True)
    process = start(policy, "--profile", profile, "--seconds", "0.5")
    assert process.wait(timeout=60) == 1
    assert "stopped      never confirmed" in process.stdout.read()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--robot", "bender"), "no robot 'bender'; robots: null, replay, sim, udp"),
        (("--profile", "nowhere.yaml"), "nowhere.yaml: no robot profile"),
        (("--report", "nowhere/out.json"), "nowhere/out.json: No such file or directory, cannot write"),
        *((("--report", p), f"{p}: no regular file, cannot write the report") for p in ("/", "/dev/null")),
        *((("--seconds", s), "seconds must be positive") for s in ("nan", "inf", "1e300", "-1", "0")),
        (("--execution-horizon", "9"), "execution horizon 9 was not trained"),
    ],
)
def test_wrong_input_is_one_line_and_exit_status_1(policy, words, message):
    status, out, err = finish(start(policy, *words))
    assert (status, out) == (1, "")
    assert err.startswith(f"andante: {message}") and err.count("\n") == 1

"""`andante run` as its user sees it: report, exit status, Ctrl-C, confirmation."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from small_policy import write_small_policy

from andante.runtime.profile import SHIPPED

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
    fault = "e_stop: operator failed to confirm: BrokenPipeError(32, 'Broken pipe')"
    assert process.stderr.read() == f"andante: cannot print the report (Broken pipe); faults: {fault}\n"
    report = json.loads(path.read_text())
    assert (report["state"], report["faults"]) == ("fault", [fault])


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
    stopped = "time over" if ran else "asked to"
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
        (("--report", "/"), "/: Is a directory, cannot write the report"),
        *((("--seconds", s), "seconds must be positive") for s in ("nan", "inf", "1e300", "-1", "0")),
        (("--execution-horizon", "9"), "execution horizon 9 was not trained"),
    ],
)
def test_wrong_input_is_one_line_and_exit_status_1(policy, words, message):
    status, out, err = finish(start(policy, *words))
    assert (status, out) == (1, "")
    assert err.startswith(f"andante: {message}") and err.count("\n") == 1

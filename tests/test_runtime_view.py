"""The live view: a page in a real browser that watches a run, stops it, and tries its fallback table."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from browser import CHROMIUM, Page, serving, wait_for
from conftest import andante
from small_policy import small_contract, write_small_policy

from andante.doctor.null_robot import NullRobot
from andante.runtime.command import FIELDS, JointCommand
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.loop import RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.profile import SHIPPED, load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.steps import Fallback
from andante.runtime.view import words
from andante.runtime.view.live import LiveView
from andante.runtime.view.messages import BINS, EMERGENCY_STOP, RESTART, STOP, Inject, Snapshot
from andante.runtime.view.options import ViewOptions
from andante.runtime.view.scene import find_scene
from andante.runtime.view.server import Server
from andante.sim.faults import KINDS, Fault, FaultyRobot
from andante.sim.robot import SimRobot

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("view") / "policy.onnx")


@pytest.fixture
def profile(tmp_path):
    """The shipped pendulum, patient with a machine that draws pages, and with a fallback in two steps."""
    content = yaml.safe_load((SHIPPED / "pendulum.yaml").read_text())
    for event in ("overrun", "starvation"):
        content["fallback"][event][0]["ticks"] = 10**6
    steps = [{"action": "damping", "gains": "damping", "duration_s": 0.5}, {"action": "external"}]
    content["fallback"]["non_finite"] = steps
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def running(*words: str | Path, **options):
    """`andante run ... --robot sim --view` in a process of its own, and the address of its page."""
    command = ["run", *words, "--robot", "sim", "--view", "--port", "0"]
    return serving(command, r"view at (http://127\.0\.0\.1:\d+)\n", **options)


def is_in(state: str):
    return lambda text: re.search(rf"^{state}$", text, re.M)


@pytest.mark.realtime
@needs_chromium
def test_the_page_shows_the_run_and_its_stop_button_ends_it_softly(policy, profile, tmp_path):
    with (
        running(policy, "--profile", profile, "--seconds", "600") as (process, url),
        Page(url, tmp_path / "browser") as page,
    ):
        page.wait_for_text(is_in("run"), "the policy")
        page.wait_for_text(lambda text: re.search(r"decisions [1-9]", text), "decisions")
        text = page.text()
        assert re.search(r"^hinge(\t-?[\d.e-]+){5}$", text, re.M)
        assert re.search(r"^joint_position\t0\.0\t-?\d\.\d{3}$", text, re.M)
        assert re.search(r"^\twake-up\twork\tinference$", text, re.M)
        assert "non_finite\tdamping 0.5 s, external" in text

        def coloured() -> bool:
            pixels = page.screenshot()[150:, :500].astype(int)
            return (np.ptp(pixels, axis=-1) > 15).sum() > 100

        wait_for(coloured, "the robot, between shades of grey")
        page.press("Stop")
        out, err = process.communicate(timeout=60)
        page.wait_for_text(lambda text: "the run is over" in text, "the end")
        assert re.search(r"^\d+\.\d\d s: stop, asked to on the page$", page.text(), re.M)
        assert is_in("disabled")(page.text())
    assert (process.returncode, err) == (0, "")
    assert "stopped      asked to on the page" in out and "state        disabled" in out


@pytest.mark.realtime
@needs_chromium
def test_a_fault_is_tried_told_and_taken_back_and_the_emergency_stop_stays(policy, profile, tmp_path):
    with (
        running(policy, "--profile", profile, "--seconds", "600") as (process, url),
        Page(url, tmp_path / "browser") as page,
    ):
        page.wait_for_text(is_in("run"), "the policy")
        page.press("nan")
        page.wait_for_text(is_in("fault"), "the fault")
        reason = "non_finite: joint_position of joint 'hinge' is not finite"
        for state in ("fallback", "fault"):
            assert re.search(rf"s: {state}, {re.escape(reason)}$", page.text(), re.M)
        assert re.search("^mode disabled$", page.text(), re.M)
        assert page.evaluate("document.querySelector('mark').innerText") == "non_finite"

        page.press("Restart")
        page.wait_for_text(is_in("run"), "the policy again")
        assert page.evaluate("document.querySelector('mark')") is None
        page.press("Emergency stop")
        page.wait_for_text(is_in("fault"), "the stop")
        assert "fault, e_stop: pressed on the page" in page.text()
        page.wait_for_text(lambda text: "No restart: the emergency stop stays" in text, "why it stays")
        page.press("Stop")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "faults       e_stop: pressed on the page" in out


@pytest.mark.realtime
def test_the_page_ends_with_the_run_even_if_that_is_killed(policy, profile):
    with running(policy, "--profile", profile) as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 1
        process.kill()
        wait_for(lambda: not is_alive(int(children[0])), "the end of the page's process")


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.realtime
def test_ctrl_c_is_for_the_run_and_not_for_its_page(policy, profile):
    with running(policy, "--profile", profile, start_new_session=True) as (process, _):
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "stopped      asked to\n" in out and "view  " not in out


def test_a_host_that_is_not_ours_is_told_in_a_line(policy):
    result = andante("run", policy, "--robot", "sim", "--view", "--host", "192.0.2.1")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("andante: cannot listen at host '192.0.2.1': Cannot assign")


class Log:
    """State and command of every tick."""

    def __init__(self, controller):
        self.controller, self.states, self.rows = controller, [], []

    def __call__(self, tick, sample, command, *_):
        assert tick == len(self.rows)
        self.states.append(self.controller.state.value)
        self.rows.append([getattr(command, field)[0] for field in FIELDS])


@contextmanager
def viewed(policy, robot=SimRobot, host="127.0.0.1", wishes=None):
    """A loop as fast as it goes, its view and log; `wishes` are what is pressed on the page after a tick."""
    controller = Controller(load_policy(policy), load_profile("pendulum"))
    machine = robot(controller.contract, controller.profile)
    log = Log(controller)

    def press(tick, *_):
        for wish in (wishes or {}).get(tick, ()):
            view.obey(wish)

    with closing(LiveView(controller, machine, lambda: loop, host, 0)) as view:
        observers = [log, view.after_tick, press]
        loop = RealtimeLoop(controller, view.robot, clock=VirtualClock(), observers=observers)
        yield loop, view, log


def run_alone(policy, faults=()):
    """The same without a view."""
    controller = Controller(load_policy(policy), load_profile("pendulum"))
    robot = FaultyRobot(SimRobot(controller.contract, controller.profile), faults, sleep=lambda _: None)
    log = Log(controller)
    report = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[log]).run(1.0)
    return report, log


def test_only_this_machine_can_reach_the_page_unless_asked():
    for options, listening in ((ViewOptions(), "0100007F"), (ViewOptions(host="0.0.0.0"), "00000000")):
        server = Server(options.host, 0, "test")
        port = int(server.url.rpartition(":")[2])
        sockets = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        server.stop()
        assert f"{listening}:{port:04X}" in sockets


def test_the_missing_extra_is_named(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(AndanteError, match=r"--view needs viser.*pip install '\.\[view\]'"), viewed(policy):
        pass


def test_a_watched_run_is_bit_equal_to_one_that_nobody_watches_also_after_a_restart(policy):
    fault = Inject(kind="nan", signal=None, ticks=10**6, amount=0.0)
    with viewed(policy, wishes={49: [fault], 59: [RESTART]}) as (loop, _, log):
        report = loop.run(1.0)
    alone, twin = run_alone(policy)
    assert log.states[49:51] == ["run", "fault"]
    assert (log.rows[:50], log.states[:50]) == (twin.rows[:50], twin.states[:50])
    assert (log.rows[60:], log.states[60:]) == (twin.rows, twin.states)
    assert (report.ticks, report.faults, report.stopped) == (alone.ticks, (), "time over")


def test_nothing_begins_anew_after_the_emergency_stop_of_the_page(policy):
    wishes = {40: [EMERGENCY_STOP], 50: [RESTART], 60: [STOP]}
    with viewed(policy, wishes=wishes) as (loop, _, log):
        report = loop.run(600.0)
    assert log.states[40:] == ["run", *["fault"] * (len(log.states) - 41)]
    assert report.faults == ("e_stop: pressed on the page",) and report.ticks >= 60


def test_a_page_that_hangs_is_not_waited_for(policy):
    with viewed(policy, NullRobot) as (loop, view, log):
        os.kill(view._process.pid, signal.SIGSTOP)  # more snapshots than any socket holds
        assert (loop.run(100.0).faults, view.error) == ((), None)
        os.kill(view._process.pid, signal.SIGCONT)
    assert len(log.rows) > 5_000


def test_a_run_outlives_its_page(policy):
    with viewed(policy, NullRobot) as (loop, view, _):
        view._process.kill()
        view._process.wait()
        report = loop.run(2.0)
    assert (report.faults, report.state) == ((), "disabled")
    assert view.error is not None and view.error.startswith("the page is gone: ")


def test_every_inference_is_shown_once_whatever_policy_makes_it(policy, tmp_path):
    other = load_policy(write_small_policy(tmp_path / "other.onnx", seed=5))
    with viewed(policy, NullRobot) as (loop, view, _):
        loop.observers = [view.after_tick]
        decisions = [loop.run(1.0).decisions]
        loop.controller.swap(other)
        decisions.append(loop.run(1.0).decisions)
    assert loop.controller.policy is other
    assert sum(view._timings["inference"]) == sum(decisions) == 20


def test_a_real_robot_is_stopped_but_not_made_to_fail_or_to_start(policy):
    fault = Inject(kind="nan", signal=None, ticks=10, amount=0.0)
    wishes = {40: [fault, RESTART], 60: [STOP], 62: [EMERGENCY_STOP]}
    with viewed(policy, NullRobot, wishes=wishes) as (loop, view, log):
        assert type(view.robot) is NullRobot
        report = loop.run(600.0)
    assert log.states[40:61] == ["run"] * 21
    assert log.states[61:] == ["stop", "stop", "fault"]
    assert (report.faults, report.stopped) == (("e_stop: pressed on the page",), "fault")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "slow_read"])
def test_every_fault_that_is_tried_does_what_the_same_one_does_by_plan(policy, kind):
    for signal_ in (None, "joint_velocity"):
        controller = Controller(load_policy(policy), load_profile("pendulum"))
        robot = SimRobot(controller.contract, controller.profile).on_trial()
        log = Log(controller)

        def inject(tick, *_, robot=robot, signal_=signal_):
            if tick == 49:
                robot.inject(kind, signal_, 7, robot.kinds[kind])

        loop = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[log, inject])
        report = loop.run(1.0)
        fault = Fault(kind=kind, from_tick=50, to_tick=57, signal=signal_, amount=robot.kinds[kind])
        alone, twin = run_alone(policy, [fault])
        assert report.faults == alone.faults
        assert (log.rows, log.states) == (twin.rows, twin.states)


def test_a_slow_reading_takes_its_time(policy):
    robot = SimRobot(load_policy(policy).contract, load_profile("pendulum")).on_trial()
    robot.inject("slow_read", None, 1, 2e7)
    begun = time.monotonic()
    robot.read()
    assert time.monotonic() - begun >= 0.02


def test_a_fault_that_cannot_be_is_refused_and_leaves_the_robot_as_it_is(policy):
    robot = SimRobot(load_policy(policy).contract, load_profile("pendulum")).on_trial()
    for kind, ticks, amount in (("melt", 5, 0.0), ("delay", 5, 1e9), ("nan", 0, 0.0)):
        with pytest.raises(ValueError, match=kind):
            robot.inject(kind, None, ticks, amount)
    assert robot.faults == ()


def snapshot(**changes) -> Snapshot:
    fields = {
        "tick": 100,
        "state": "run",
        "fault": None,
        "waiting": None,
        "stopping": None,
        "values": {"joint_position": [1.0, -2.0]},
        "ages_ms": {"joint_position": 1.25},
        "wanted": [],
        "mode": "track",
        "command": {field: [0.5, 0.25] for field in FIELDS},
        "counters": {"ticks": 3, "refused": 0},
        "timings": {"work": [0] * BINS, "inference": [0] * BINS},
    }
    return Snapshot(**(fields | changes))


def text_of(html: str) -> str:
    return re.sub(r"<[^>]*>", " ", html.replace("&nbsp;", "")).strip()


def test_what_a_robot_says_is_no_markup():
    contract = small_contract()
    found = words.facts(snapshot(fault="e_stop: <script>alert()</script>"), contract)
    assert "<script>" not in found and "&lt;script&gt;" in found
    assert "<script>" not in words.log(["<script>"])


def test_histograms_show_what_was_seen_and_what_is_beyond():
    work, inference = [0] * BINS, [0] * BINS
    work[7], work[8], inference[8], inference[BINS - 1] = 5, 10, 1, 2
    rows = words.timings(snapshot(timings={"work": work, "inference": inference})).split("<tr>")[2:]
    assert text_of(rows[0]).split() == ["&lt;", "128", "us", "5"]
    assert text_of(rows[1]).split() == ["&lt;", "256", "us", "10", "1"]
    assert text_of(rows[-1]).split() == ["more", "2"]
    widths = [float(width) for width in re.findall(r"width: ([\d.]+)em", rows[0] + rows[1])]
    assert widths[0] == widths[2] / 2 and widths[3] == widths[2] / 2
    assert words.timings(snapshot()) == ""


def test_a_ladder_and_a_table_by_state_are_told_in_words():
    profile = load_profile("quadruped")
    hold = {"action": "hold", "gains": "stand", "duration_s": 0.5}
    ladder = [{"action": "keep", "ticks": 3}, hold, {"action": "damping", "gains": "damping"}]
    table = {"run": ladder, "otherwise": [{"action": "external"}]}
    fallback = msgspec.convert(msgspec.to_builtins(profile.fallback) | {"tilt": table}, Fallback)
    text = words.fallback(msgspec.structs.replace(profile, fallback=fallback), "tilt")
    assert "run keep 3 ticks, hold 0.5 s, damping<br/>otherwise external" in text
    assert "track crouch 1 s" in text
    assert re.findall("<mark>(.*?)</mark>", text) == ["tilt"]


@pytest.fixture
def server():
    server = Server("127.0.0.1", 0, "test")
    yield server
    server.stop()


@pytest.mark.parametrize("mounting", [None, (0.5, 0.5, -0.5, 0.5)])
def test_the_scene_shows_a_floating_robot_as_it_is_measured_on_the_ground(mounting, server):
    contract, profile = small_contract("quadruped"), load_profile("quadruped")
    orientation = msgspec.structs.replace(profile.signals["orientation"], mounting=mounting)
    joints = tuple(
        msgspec.structs.replace(joint, sign=-1, zero_offset=0.25, position=None) for joint in profile.joints
    )
    keyframes = {name: {j: 0.25 - q for j, q in pose.items()} for name, pose in profile.keyframes.items()}
    profile = msgspec.structs.replace(
        profile, signals=profile.signals | {"orientation": orientation}, joints=joints, keyframes=keyframes
    )
    robot = SimRobot(contract, profile, seed=3)
    for tick in range(100):
        command = JointCommand.allocate(len(profile.joints), 10**9)
        command.tick = tick
        robot.write(command)
    scene, reason = find_scene(server, contract, profile)
    assert reason == ""
    scene.show({name: values.tolist() for name, values in robot.read().values.items()})
    np.testing.assert_allclose(scene.data.qpos[7:], robot.data.qpos[7:], atol=1e-9)
    # The orientation is one physics step older.
    np.testing.assert_allclose(np.abs(scene.data.qpos[3:7] @ robot.data.qpos[3:7]), 1.0, atol=1e-3)
    np.testing.assert_allclose(scene.data.qpos[2], robot.data.qpos[2], atol=0.01)


def test_a_robot_that_nobody_can_draw_has_a_page_without_scene(server):
    contract = msgspec.structs.replace(small_contract(), task="secret")
    scene, reason = find_scene(server, contract, load_profile("pendulum"))
    assert scene is None and reason.startswith("mujoco: no task 'secret'")

"""The live view: a page in a real browser, of a real process, that shows a world and steers it."""

from __future__ import annotations

import re
import signal
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import CHROMIUM, Page, serving, wait_for

from andante.sim import make
from andante.sim.spec import get_spec
from andante.sim.viewer import Viewer

TASK = "quadruped-velocity"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


def playing(*words: str):
    """`andante play ... --live` in a process of its own, and the address of its page."""
    return serving(["play", *words, "--live", "--port", "0"], r"(http://127\.0\.0\.1:\d+) shows ")


def numbers(label: str, text: str) -> list[float] | None:
    """What the page says after a word."""
    found = re.search(rf"\b{label} ((?:-?[\d.]+ ?)+)", text)
    return None if found is None else [float(word) for word in found[1].split()]


def colours(image: np.ndarray) -> int:
    """How many there are besides shades of grey."""
    unique = np.unique(image.reshape(-1, 3), axis=0).astype(int)
    return int((unique.max(-1) - unique.min(-1) > 15).sum())


def episode_s(text: str) -> float | None:
    found = re.search(r"episode \d+, ([\d.]+) s", text)
    return None if found is None else float(found[1])


@pytest.mark.realtime
@needs_chromium
def test_the_page_shows_the_robot_its_sliders_command_it_and_close_ends_the_process(tmp_path):
    with playing(TASK, "--agent", "random") as (process, url), Page(url, tmp_path) as page:
        page.wait_for_text(lambda text: numbers("watched by", text) == [1.0], "the server to know the page")
        wait_for(lambda: colours(page.screenshot()[150:, :500]) > 100, "the robot, between shades of grey")

        page.press("Pause")
        page.slide("lin_vel_x", 0.2)
        page.press("Play")
        page.wait_for_text(
            lambda text: (
                (numbers("command", text) or [0.0])[0] >= 0.1 and numbers("command", text)[1:] == [0.0, 0.0]
            ),
            "a command straight ahead, on its way to 0.2",
        )

        before = page.screenshot()[150:, :500].astype(int)
        wait_for(
            lambda: (abs(page.screenshot()[150:, :500] - before).max(-1) > 60).sum() > 50, "the robot's moves"
        )

        page.press("Close")
        assert process.wait(20) == 0
        assert re.search(rf"^{TASK}, random: \d+ ticks, \d+ whole episodes$", process.stdout.read(), re.M)


@pytest.mark.realtime
@needs_chromium
def test_pause_holds_a_world_without_physics_and_restart_begins_an_episode(tmp_path):
    with playing("tmaze/300", "--agent", "random") as (_, url), Page(url, tmp_path) as page:
        page.wait_for_text(lambda text: numbers("watched by", text) == [1.0], "the server to know the page")
        page.wait_for_text(lambda text: (episode_s(text) or 0) > 1, "a second")
        page.press("Pause")
        page.wait_for_text(lambda text: "Play" in text, "the pause")
        time.sleep(0.5)
        held = episode_s(page.text())
        time.sleep(0.5)
        assert episode_s(page.text()) == held
        assert numbers("cue", page.text()) == [0.0, 0.0]
        page.press("Restart")
        page.wait_for_text(lambda text: episode_s(text) == 0.1, "a new episode's first tick")
        assert sorted(numbers("cue", page.text())) == [0.0, 1.0]
        page.press("Play")
        page.wait_for_text(lambda text: episode_s(text) > 0.3, "the rest")
        assert "reward per tick" in page.text()


@pytest.mark.realtime
def test_it_keeps_pace_with_the_clock_and_ends_in_time():
    with playing("pendulum-swingup-blind", "--seconds", "2") as (process, _):
        assert process.wait(30) == 0
        ticks = int(re.search(r"(\d+) ticks", process.stdout.read())[1])
        assert 5 <= ticks <= 101


def test_ctrl_c_ends_it():
    with playing("pendulum-swingup-blind") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == "andante: interrupted\n"


def test_only_this_machine_can_reach_it_unless_asked():
    for host, listening in (("127.0.0.1", "0100007F"), ("0.0.0.0", "00000000")):
        with closing(Viewer(get_spec("tmaze"), "title", physics=False, host=host, port=0)) as viewer:
            port = int(viewer.url.rpartition(":")[2])
            sockets = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            assert f"{listening}:{port:04X}" in sockets


def test_a_port_in_use_is_passed_over():
    first, second = (Viewer(get_spec("tmaze"), "title", physics=False, port=18080) for _ in range(2))
    with closing(first), closing(second):
        assert first.url != second.url


def run_commands(env, ticks: int, n: int = 1) -> torch.Tensor:
    """The commands that a world of the quadruped measures at each border of calls."""
    rest = torch.tensor(env.spec.action_middle).repeat(env.num_worlds, n, 1)
    return torch.stack([env.step(rest).observation.sources["command"][0] for _ in range(ticks // n)])


def test_a_hand_leads_the_command_at_its_slew_rate_within_its_range():
    env = make(TASK, 1, seed=3)
    env.reset()
    source = env.spec.command_source
    run_commands(env, 10)
    before = env.state_dict()["commands"]["value"][0]
    env.steer(torch.tensor([99.0, 0.0, -0.5]))
    commands = run_commands(env, 600, 5)
    low, high, slew = (
        torch.tensor([getattr(part, key) for part in source.components]) for key in ("low", "high", "slew")
    )
    largest = (slew * 5 * env.spec.control_dt) + 1e-5
    changes = torch.cat((before[None], commands)).diff(dim=0).abs()
    episodes = env.state_dict()["episode"]
    assert episodes > 0 or (changes <= largest).all()
    torch.testing.assert_close(commands[-1], torch.tensor([high[0], 0.0, -0.5]))
    assert (commands >= low).all() and (commands <= high).all()


def test_a_hand_outlasts_the_draws_and_episodes_until_it_lets_go():
    env = make(TASK, 1, seed=3)
    env.reset()
    interval = env.spec.command.interval_ticks
    wanted = torch.tensor([0.25, -0.1, 0.5])
    env.steer(wanted)
    run_commands(env, 100)
    held = run_commands(env, interval)
    torch.testing.assert_close(held[-1], wanted)
    env.reset()
    torch.testing.assert_close(run_commands(env, 100)[-1], wanted)
    env.steer(None)
    torch.testing.assert_close(run_commands(env, 10)[-1], wanted)
    assert (run_commands(env, interval)[-1] - wanted).abs().min() > 0.01


def test_a_hand_that_has_let_go_before_the_start_leaves_no_trace():
    env, untouched = make(TASK, 2, seed=3), make(TASK, 2, seed=3)
    env.steer(torch.ones(3))
    env.steer(None)
    for each in (env, untouched):
        each.reset()
    assert torch.equal(run_commands(env, 400, 5), run_commands(untouched, 400, 5))
    assert torch.equal(env.state_dict()["state"], untouched.state_dict()["state"])

"""The bench of simulated fault episodes: all is as the profile's table says, and it notices what is not."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from small_policy import write_small_policy

from andante.runtime.contract import Trained
from andante.runtime.policy import load_policy
from andante.runtime.profile import SHIPPED

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def policy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    fields = {
        "execution_horizon": Trained(values=(3,), default=3),
        "inference_delay": Trained(values=(0, 1), default=0),
    }
    return load_policy(write_small_policy(tmp_path / "small.onnx", **fields))


def test_episodes_with_random_faults_go_as_the_table_says(policy, tmp_path):
    tally = import_module("fault_episodes").run(policy, range(16), 0, tmp_path)
    assert tally.right.total() == tally.total == 16
    assert [tally.audit[key] for key in import_module("soak").VIOLATIONS] == [0] * 5


def missing(policy, ticks: int, tolerated: int):
    """A run in which a signal is missing, judged by a table that tolerates so many stale ticks."""
    run = import_module("fault_run")
    robot = run.Robot(policy, SHIPPED / "pendulum.yaml")
    robot.content["fallback"]["stale_source"][0]["ticks"] = tolerated
    plan = run.Plan("drop", "joint_position", begin=40, ticks=ticks)
    episode = run.Episode(robot, plan, np.random.default_rng(0))
    return episode.run(Counter()), episode.referee


def test_a_signal_may_be_missing_as_long_as_the_table_says_and_no_longer(policy):
    wrong, referee = missing(policy, ticks=4, tolerated=2)
    assert (wrong, referee.state, referee.events) == (None, "disabled", {"stale_source"})
    wrong, referee = missing(policy, ticks=5, tolerated=2)
    assert (wrong, referee.state, referee.reason) == (None, "fault", "stale_source")


def test_a_robot_that_tolerates_less_than_its_table_says_is_noticed(policy):
    wrong, _ = missing(policy, ticks=5, tolerated=3)
    reason = "stale_source: joint_position is 100.0 ms old"
    assert wrong == f"tick 44: expected state run, found fault ({reason})"

"""Fixtures that several test files share: one policy is trained per session, through the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


def andante(*words: str | Path, **options) -> subprocess.CompletedProcess:
    """Run the `andante` command of this environment in a process of its own."""
    command = [str(Path(sys.executable).with_name("andante")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)


def run_andante(*words: str | Path, **options) -> subprocess.CompletedProcess:
    """Like `andante`, and fails with the command's own output unless it exits with 0."""
    result = andante(*words, **options)
    assert result.returncode == 0, f"andante {' '.join(map(str, words))}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory) -> Path:
    """Where recordings of faults go, instead of the user's own folder."""
    folder = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory) -> Path:
    """Folder of a run that has solved the blind pendulum with a GRU and chunks of five.

    `ANDANTE_TEST_RUN` may name a finished one, to save the training while working on tests.
    """
    if "ANDANTE_TEST_RUN" in os.environ:
        return Path(os.environ["ANDANTE_TEST_RUN"]).resolve()
    folder = tmp_path_factory.mktemp("trained") / "run"
    run_andante("train", "pendulum-swingup-blind", "--memory", "gru", "--run-dir", folder)
    return folder


@pytest.fixture(scope="session")
def trained_policy(trained_run, tmp_path_factory) -> Path:
    """The exported policy of `trained_run`."""
    path = tmp_path_factory.mktemp("exported") / "policy.onnx"
    run_andante("export", trained_run, "--output", path)
    return path

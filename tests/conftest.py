"""What several test files share: one policy is trained per session, through the command line."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
LONGEST = ("test_walking.py", "test_end_to_end.py")

# Before torch: two workers whose threads wait for each other's cores take five times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

with suppress(ImportError):  # the nodes' environment has no hypothesis
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


def pytest_collection_modifyitems(items) -> None:
    """The longest files come first: of two workers none is left to wait for the other's last file."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def andante(*words: str | Path, **options) -> subprocess.CompletedProcess:
    """Run the `andante` command of this environment in a process of its own."""
    command = [str(Path(sys.executable).with_name("andante")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, **options)


def free_addresses(count: int) -> list[str]:
    """UDP addresses where nobody listens, below the ports that the system hands out by itself."""
    free: list[str] = []
    while len(free) < count:
        port = random.SystemRandom().randint(20_000, 32_000)
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.bind(("127.0.0.1", port))
            free.append(f"127.0.0.1:{port}")
    return free


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

    `ANDANTE_TEST_RUN` names where it is kept; it is trained there if there is none, by one process for all.
    """
    default = tmp_path_factory.mktemp("trained") / "run"
    folder = Path(os.environ.get("ANDANTE_TEST_RUN", default)).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "result.json").exists():
            run_andante("train", "pendulum-swingup-blind", "--memory", "gru", "--run-dir", folder)
    return folder


@pytest.fixture(scope="session")
def trained_policy(trained_run, tmp_path_factory) -> Path:
    """The exported policy of `trained_run`."""
    path = tmp_path_factory.mktemp("exported") / "policy.onnx"
    run_andante("export", trained_run, "--output", path)
    return path

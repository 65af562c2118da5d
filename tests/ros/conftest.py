"""Fixtures of the tests with real rclpy.

`ANDANTE_TEST_POLICY` names a policy file that has solved `pendulum-swingup-blind`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Before rclpy: this machine only, and nobody else's nodes.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
os.environ["AMENT_PREFIX_PATH"] = sys.prefix
os.environ["FASTDDS_DEFAULT_PROFILES_FILE"] = str(Path(__file__).with_name("discovery.xml"))

import pytest
import rclpy
from nodes import Client, NodeProcess

from andante.runtime.profile import SHIPPED


@pytest.fixture(scope="session", autouse=True)
def no_logs_at_home(tmp_path_factory) -> None:
    os.environ["ROS_LOG_DIR"] = str(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="session")
def policy() -> Path:
    path = os.environ.get("ANDANTE_TEST_POLICY", "")
    assert Path(path).is_file(), f"ANDANTE_TEST_POLICY must name a policy file, found {path!r}"
    return Path(path)


@pytest.fixture(scope="session")
def profile(tmp_path_factory) -> Path:
    """The shipped profile, but a busy machine may hold up joint states for half a second."""
    text, found = re.subn(r"keep, ticks: \d+", "keep, ticks: 25", (SHIPPED / "pendulum.yaml").read_text())
    assert found
    path = tmp_path_factory.mktemp("profile") / "patient.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def client() -> Iterator[Client]:
    rclpy.init()
    client = Client()
    yield client
    client.close()
    rclpy.shutdown()


@pytest.fixture
def start(policy, profile, tmp_path) -> Iterator[Callable[..., NodeProcess]]:
    """Starts one of the package's nodes; pytest shows the logs after a failure."""
    processes: list[NodeProcess] = []

    def start(name: str, **parameters: object) -> NodeProcess:
        log = tmp_path / f"{len(processes)}_{name}.log"
        processes.append(NodeProcess(name, {"policy": policy, "profile": profile} | parameters, log))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        print(process.log)

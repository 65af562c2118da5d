"""The package as colcon builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ros_nodes"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    workspace = tmp_path_factory.mktemp("workspace")
    shutil.copytree(
        PACKAGE, workspace / "src/andante_ros", ignore=shutil.ignore_patterns("*.egg-info", "build")
    )
    colcon = Path(sys.executable).with_name("colcon")
    result = subprocess.run([colcon, "build"], cwd=workspace, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return workspace / "install/andante_ros"


def test_the_package_and_its_launch_file_are_found_through_the_ament_index(prefix):
    assert (prefix / "share/ament_index/resource_index/packages/andante_ros").is_file()
    assert (prefix / "share/andante_ros/package.xml").is_file()
    assert (prefix / "share/andante_ros/launch/sim.launch.yaml").is_file()


@pytest.mark.parametrize("name", ["policy_node", "mujoco_sim_node"])
def test_installed_executables_start_and_name_a_parameter_of_the_wrong_type(prefix, name):
    packages = next(prefix.glob("lib/python*/site-packages"))
    result = subprocess.run(
        [prefix / "lib/andante_ros" / name, "--ros-args", "-p", "policy:=5"],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("andante_ros: ")
    assert "'policy'" in result.stderr
    assert result.stderr.count("\n") == 1

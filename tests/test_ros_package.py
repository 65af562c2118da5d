"""The ROS 2 package: what its files say about each other, and its own tests in their own environment."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import setuptools  # noqa: F401 (brings distutils)
import yaml

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "ros_nodes"
ROS_PYTHON = REPO / ".venv-ros/bin/python"
ARGUMENT = re.compile(r"\$\(var (\w+)\)")
SHARED_FILE = re.compile(r"\$\(find-pkg-share (\w+)\)/(\S+)")

sys.path.insert(0, str(PACKAGE))
from andante_ros import params  # noqa: E402

PARAMETERS = {"policy_node": params.POLICY_NODE, "mujoco_sim_node": params.MUJOCO_SIM_NODE}
LAUNCH_FILES = sorted((PACKAGE / "launch").iterdir())


@pytest.fixture(scope="module")
def distribution():
    run_setup = importlib.import_module("distutils.core").run_setup
    return run_setup(str(PACKAGE / "setup.py"), stop_after="init")


@pytest.fixture(scope="module")
def manifest() -> ElementTree.Element:
    return ElementTree.parse(PACKAGE / "package.xml").getroot()


@pytest.fixture(params=LAUNCH_FILES, ids=lambda path: path.name)
def launch(request) -> list[dict]:
    return yaml.safe_load(request.param.read_text())["launch"]


def described(launch: list[dict], action: str) -> list[dict]:
    return [entry[action] for entry in launch if action in entry]


def executables(distribution) -> dict[str, str]:
    """Console script -> `module:function`."""
    scripts = distribution.entry_points["console_scripts"]
    return dict(re.split(r"\s*=\s*", script) for script in scripts)


def installed(distribution) -> set[str]:
    """Data files as paths below the installation prefix."""
    return {f"{folder}/{Path(path).name}" for folder, paths in distribution.data_files for path in paths}


def test_launched_executables_are_console_scripts_of_the_package(launch, distribution):
    for node in described(launch, "node"):
        assert node["pkg"] == distribution.get_name()
        module, function = executables(distribution)[node["exec"]].split(":")
        tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text())
        assert function in {entry.name for entry in tree.body if isinstance(entry, ast.FunctionDef)}


def test_launched_parameters_are_declared_by_their_node(launch):
    for node in described(launch, "node"):
        names = {item["name"] for item in node["param"] if "name" in item}
        assert names <= set(PARAMETERS[node["exec"]])


def test_launch_arguments_are_declared_and_used(launch):
    declared = {argument["name"] for argument in described(launch, "arg")}
    assert set(ARGUMENT.findall(str(described(launch, "node")))) == declared


def test_files_that_a_launch_file_refers_to_are_installed(launch, distribution):
    files = [
        file
        for argument in described(launch, "arg")
        for file in SHARED_FILE.findall(argument.get("default", ""))
    ]
    assert files
    for package, path in files:
        assert f"share/{package}/{path}" in installed(distribution)


def test_launch_actions_have_only_attributes_that_the_yaml_frontend_knows(launch):
    known = {
        "arg": {"name", "default", "description"},
        "node": {"pkg", "exec", "name", "output", "param"},
    }
    for entry in launch:
        [(action, attributes)] = entry.items()
        assert set(attributes) <= known[action]


@pytest.mark.parametrize("node", PARAMETERS)
def test_the_configuration_file_states_the_defaults(node):
    content = yaml.safe_load((PACKAGE / f"config/{node}.yaml").read_text())["/**"]["ros__parameters"]
    defaults = {name: parameter.default for name, parameter in PARAMETERS[node].items() if name != "policy"}
    assert content == defaults


def test_names_versions_and_licence_agree(distribution, manifest):
    assert manifest.findtext("name") == distribution.get_name()
    assert manifest.findtext("version") == distribution.get_version()
    assert manifest.findtext("license") == distribution.metadata.license
    assert f"share/ament_index/resource_index/packages/{distribution.get_name()}" in installed(distribution)
    assert f"share/{distribution.get_name()}/package.xml" in installed(distribution)


def test_the_manifest_depends_on_what_the_code_imports(manifest):
    imported = set()
    for path in (PACKAGE / "andante_ros").glob("*.py"):
        for entry in ast.walk(ast.parse(path.read_text())):
            if isinstance(entry, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in entry.names}
            elif isinstance(entry, ast.ImportFrom) and entry.level == 0:
                imported.add(entry.module.split(".")[0])
    # andante and what it brings come from pip.
    imported -= {*sys.stdlib_module_names, "andante", "msgspec"}
    depended = {entry.text.removeprefix("python3-") for entry in manifest.iterfind("exec_depend")}
    assert imported == depended - {"ros2launch", "launch_ros", "launch_yaml"}


@pytest.mark.realtime
def test_nodes_with_real_rclpy(trained_policy):
    assert ROS_PYTHON.exists(), f"no {ROS_PYTHON}: see CONTRIBUTING.md"
    environment = {**os.environ, "ANDANTE_TEST_POLICY": str(trained_policy)}
    # The wheels' start-up hook sets it, and must run anew in another environment.
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    result = subprocess.run(
        [ROS_PYTHON, "-m", "pytest", "-p", "no:cacheprovider", REPO / "tests/ros"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"

"""Rooms import one way, heavy packages stay in their rooms, and public names resolve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import andante.runtime

REPO = Path(__file__).resolve().parents[1]


def test_import_rules_of_pyproject_hold(capsys):
    status = lint_imports(str(REPO / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        (
            "import andante.cli; andante.cli.main(['--help'])",
            {"numpy", "onnxruntime", "torch"},
        ),
        ("from andante.runtime import *", {"torch", "mujoco", "onnx", "rclpy"}),
        (
            "import andante.doctor.commands.doctor, andante.doctor.commands.verify",
            {"torch", "mujoco", "onnx", "rclpy"},
        ),
        ("import andante.sim.robot", {"torch", "onnx", "rclpy"}),
        ("import andante.train.cli, andante.export.cli", {"torch", "onnx"}),
    ],
)
def test_import_does_not_bring(statement, forbidden):
    found = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; sys.stderr.write(' '.join(sys.modules))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert forbidden.isdisjoint(found.stderr.split())


def test_every_public_name_of_the_runtime_resolves():
    for name in andante.runtime.__all__:
        assert getattr(andante.runtime, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        andante.runtime.absent  # noqa: B018

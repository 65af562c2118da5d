"""The runtime on 64-bit ARM, emulated where qemu and Debian's packages are at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from andante.runtime.policy import load_policy

pytestmark = pytest.mark.realtime

REPO = Path(__file__).resolve().parents[1]
ONNXRUNTIME = "onnxruntime==1.26.0"  # 1.32 crashes under qemu 7.2
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
DECISIONS = 200
RUN = """
import sys
import numpy as np
from andante.runtime import load_policy
policy = load_policy(sys.argv[1])
chunks = []
for sources in np.load(sys.argv[2]):
    policy.flat_inputs[:] = sources
    chunks.append(policy.infer().copy())
    policy.commit()
np.save(sys.argv[3], chunks)
"""


class Arm:
    """Python on an emulated ARM processor, with the runtime and what it depends on."""

    def __init__(self, folder: Path) -> None:
        self.root, self.packages = folder / "root", folder / "packages"
        _unpack_debian(folder, self.root)
        self.python = next((self.root / "usr/bin").glob("python3.[0-9]*"))
        _install(self.python.name.removeprefix("python"), self.packages)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess:
        path = f"{REPO / 'src'}:{self.packages}"
        command = [EMULATOR, "-L", self.root, "-E", f"PYTHONHOME={self.root / 'usr'}", self.python, *words]
        return _run(command, env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> Arm:
    if EMULATOR is None:
        pytest.skip("no qemu-aarch64 here")
    return Arm(tmp_path_factory.mktemp("arm"))


def test_arm_gives_the_actions_of_this_processor(arm, trained_policy, tmp_path):
    policy = load_policy(trained_policy)
    random = np.random.default_rng(0)
    inputs = random.uniform(-2, 2, (DECISIONS, len(policy.flat_inputs))).astype(np.float32)
    expected = []
    for sources in inputs:
        policy.flat_inputs[:] = sources
        expected.append(policy.infer().copy())
        policy.commit()
    np.save(tmp_path / "inputs.npy", inputs)
    result = arm.run("-c", RUN, trained_policy, tmp_path / "inputs.npy", tmp_path / "chunks.npy")
    assert result.returncode == 0, result.stderr
    found = np.load(tmp_path / "chunks.npy")
    scale = np.abs(expected).max()
    assert scale > 0
    np.testing.assert_allclose(found, expected, atol=1e-4 * scale)


def test_arm_runs_the_command_line(arm, trained_policy):
    script = "import sys; from andante.cli import main; sys.exit(main(sys.argv[1:]))"
    result = arm.run("-c", script, "run", trained_policy, "--robot", "null", "--seconds", "1", "--yes")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "state        disabled" in result.stdout


def _unpack_debian(folder: Path, root: Path) -> None:
    """Debian's Python for ARM, without a trace in this machine's package database."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    apt = ["apt-get", "-qq", "-y"]
    for option in (
        "APT::Architecture=arm64",
        "APT::Architectures::=arm64",
        f"Dir::State={folder}",
        f"Dir::State::status={folder / 'status'}",
        f"Dir::Cache={folder}",
        "APT::Sandbox::User=",
        "Debug::NoLocking=true",
    ):
        apt += ["-o", option]
    _attempt([*apt, "update"])
    packages = ("python3", "libstdc++6")
    _attempt([*apt, "--no-install-recommends", "--download-only", "install", *packages])
    for package in (folder / "archives").glob("*.deb"):
        _attempt(["dpkg-deb", "--extract", package, root])


def _install(python: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(target), "--only-binary=:all:", "--python-version", python]
    for platform in ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"):
        command += ["--platform", platform]
    _attempt([*command, ONNXRUNTIME, "numpy", "msgspec", "pyyaml", "tyro"])


def _attempt(command: list[str | Path]) -> None:
    result = _run(command)
    if result.returncode != 0:
        pytest.skip(f"{Path(command[0]).name} has no packages for ARM: {result.stderr[-300:]}")


def _run(command: list[str | Path], **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, **options
    )

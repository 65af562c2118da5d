"""What users install: the bare package runs policies without torch, mujoco or onnx, also on older Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
ROOMS = ("runtime", "doctor", "sim", "train", "export")


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """A clean copy of the project, links kept."""
    folder = tmp_path_factory.mktemp("source") / "andante"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*ROOMS, "ros_nodes", "src"):
        shutil.copytree(REPO / name, folder / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, folder)
    return folder


@pytest.fixture(scope="session")
def distributions(source, tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from nothing but the sdist."""
    out = tmp_path_factory.mktemp("dist")
    sdist = out / _build("sdist", source, out)
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    return sdist, out / _build("wheel", out / sdist.name.removesuffix(".tar.gz"), out)


@pytest.fixture(scope="session")
def bare(source, tmp_path_factory) -> Path:
    """The `bin` of a fresh environment after `pip install .`."""
    return _create_environment(sys.executable, tmp_path_factory.mktemp("bare"), str(source))


def test_sdist_and_wheel_hold_every_file_of_every_room(distributions):
    suffixes = {".py", ".yaml", ".xml", ".typed"}
    expected = {
        f"andante/{room}/{path.relative_to(REPO / room)}"
        for room in ROOMS
        for path in (REPO / room).rglob("*")
        if path.suffix in suffixes
    } | {f"andante/{name}" for name in ("__init__.py", "__main__.py", "cli.py", "py.typed")}
    sdist, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert found == expected
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/src/")[2] for name in archive.getnames()}
    assert expected <= inside


def test_bare_install_has_no_torch_mujoco_or_onnx(bare):
    script = "from importlib.util import find_spec as f; print([f(m) for m in ('torch', 'mujoco', 'onnx')])"
    assert _run(bare / "python", "-c", script).stdout == "[None, None, None]\n"


@pytest.mark.parametrize(
    "words", [("inspect",), ("verify",), ("run", "--robot", "null", "--seconds", "2")], ids=lambda w: w[0]
)
def test_bare_install_inspects_verifies_and_runs(bare, trained_policy, words):
    result = _run(bare / "andante", words[0], trained_policy, *words[1:])
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("train", "pendulum-swingup-blind", "--run-dir", "RUN"), "train"),
        (("play", "pendulum-swingup-blind"), "train"),
        (("export", "RUN", "-o", "out.onnx"), "export"),
        (("run", "POLICY", "--robot", "sim"), "sim"),
        (("verify", "POLICY", "--run", "RUN"), "train"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bare_install_names_the_missing_extra(bare, trained_policy, trained_run, tmp_path, words, extra):
    places = {"POLICY": str(trained_policy), "RUN": str(trained_run if words[0] == "verify" else "new")}
    result = _run(bare / "andante", *(places.get(word, word) for word in words), cwd=tmp_path)
    assert result.returncode != 0
    assert result.stderr.endswith(f"pip install '.[{extra}]'\n")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("python", "packages"),
    [("3.10", ("onnxruntime==1.23.2", "numpy==1.26.4")), ("3.13", ())],
    ids=["3.10", "3.13"],
)
def test_other_pythons_load_and_run_an_exported_policy(
    python, packages, distributions, trained_policy, tmp_path
):
    binaries = _create_environment(_find_python(python), tmp_path, str(distributions[1]), *packages)
    script = """
import sys
import numpy, onnxruntime
from andante.runtime import load_policy
policy = load_policy(sys.argv[1])
for values in policy.inputs.values():
    values.fill(0.1)
for _ in range(100):
    chunk = policy.infer()
    policy.commit()
assert policy.finite and chunk.any() and policy.state().any()
print(sys.version_info[:2], onnxruntime.__version__, numpy.__version__)
"""
    result = _run(binaries / "python", "-c", script, trained_policy)
    assert result.returncode == 0, result.stderr
    for package in packages:
        assert package.split("==")[1] in result.stdout
    for words in (
        ("verify", trained_policy),
        ("run", trained_policy, "--robot", "null", "--seconds", "1"),
        ("doctor", "--seconds", "0.2"),
    ):
        result = _run(binaries / "andante", *words)
        assert result.returncode == 0, result.stderr


def _build(kind: str, project: Path, out: Path) -> str:
    script = f"from setuptools import build_meta as b; print(b.build_{kind}({str(out)!r}))"
    result = _run(Path(sys.executable), "-c", script, cwd=project)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def _create_environment(python: str, folder: Path, *packages: str) -> Path:
    _run(Path(python), "-m", "venv", folder)
    binaries = folder / "bin"
    result = _run(
        binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages
    )
    assert result.returncode == 0, result.stderr
    return binaries


def _find_python(version: str) -> str:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *root.glob(f"versions/{version}*/bin/python{version}")]
    for candidate in candidates:
        if candidate and _run(Path(candidate), "--version").returncode == 0:
            return str(candidate)
    pytest.skip(f"no Python {version} here")


def _run(program: Path, *words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(program), *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
    )

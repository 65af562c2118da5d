"""`andante sweep`: all combinations, none twice, and nothing begins with a value that is of no use."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from conftest import run_andante

from andante.cli import main
from andante.train.checkpoint import Checkpoint, load_run
from andante.train.config import TrainConfig
from andante.train.fields import with_values
from andante.train.recipes import get_recipe
from andante.train.sweep import _choices

TASK = "tmaze/3"
TINY = (
    *("ticks=1", "evaluations=1", "num_worlds=4", "policy.hidden_size=8", "policy.chunk_size=1"),
    *("ppo.decisions=4", "ppo.minibatches=2", "ppo.critic_size=8"),
)
SHORT = ",".join(TINY)


def test_none_and_a_list_are_values_among_others():
    assert _choices((("ppo.final_std=None,0.1", "ppo.value_clip=null"), ("policy.memory=None",))) == {
        "ppo.final_std": [None, "0.1"],
        "ppo.value_clip": [None],
        "policy.memory": [None],
    }
    assert _choices((("ppo.smoothness=[0,0,0],[0,0,0.003]",),)) == {
        "ppo.smoothness": [[0, 0, 0], [0, 0, 0.003]]
    }
    values = {"ppo.final_std": None, "ppo.value_clip": "0.1"}
    assert with_values(get_recipe("quadruped-velocity"), values).ppo.final_std is None


def words(folder: Path, *settings: str, seeds: tuple[int, ...] = (0,)) -> list[str]:
    return ["sweep", TASK, "--run-dir", str(folder), "--seeds", *map(str, seeds), "--set", *settings, *TINY]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """Folder of a sweep over two memories and two seeds."""
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    run_andante(*words(folder, "policy.memory=mlp,gru", seeds=(0, 1)), "--jobs", "2")
    return folder


def test_every_combination_is_trained_with_every_seed(swept):
    rows = rows_of(swept)
    assert [(row["policy.memory"], row["seed"]) for row in rows] == [
        ("mlp", "0"),
        ("mlp", "1"),
        ("gru", "0"),
        ("gru", "1"),
    ]
    for row in rows:
        run = load_run(swept / row["run_dir"])
        assert (run.config.policy.memory, str(run.config.seed)) == (row["policy.memory"], row["seed"])
        assert (run.config.policy.hidden_size, run.config.ppo.decisions) == (8, 4)
        assert float(row["return"]) == run.result.returned


def test_the_table_has_mean_and_range_over_seeds_the_best_first(swept, tmp_path, capsys):
    folder = tmp_path / "runs"
    shutil.copytree(swept, folder)
    for row, returned in zip(rows_of(folder), (1.0, 2.0, 4.0, 8.0), strict=True):
        path = folder / row["run_dir"] / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"return": returned}))
    assert main(words(folder, "policy.memory=mlp,gru", seeds=(0, 1))) == 0
    first, header, *table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert first == ["4", "runs,", "4", "of", "them", "finished", "before"]
    assert (header[0], *header[-4:]) == ("policy.memory", "runs", "mean", "min", "max")
    figures = [(row[0], *row[-4:]) for row in table]
    assert figures == [("gru", "2", "6.00", "4.00", "8.00"), ("mlp", "2", "1.50", "1.00", "2.00")]


def test_a_sweep_goes_on_where_it_was_interrupted(swept, tmp_path, capfd):
    folder = tmp_path / "runs"
    shutil.copytree(swept, folder)
    kept, again = (folder / f"policy.memory=gru,{SHORT}" / name for name in ("seed0", "seed1"))
    before = (kept / "checkpoint.pt").stat().st_mtime_ns
    (again / "result.json").unlink()
    assert main(words(folder, "policy.memory=gru", seeds=(0, 1))) == 0
    assert "2 runs, 1 of them finished before" in capfd.readouterr().out
    assert (kept / "checkpoint.pt").stat().st_mtime_ns == before
    assert load_run(again).result is not None
    assert len(rows_of(folder)) == 2


def test_ctrl_c_has_the_runs_write_their_checkpoints(tmp_path):
    settings = [setting for setting in TINY if not setting.startswith("ticks")]
    command = [str(Path(sys.executable).with_name("andante")), "sweep", TASK, "--run-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--set", "ticks=1000000000", *settings], stderr=subprocess.PIPE, text=True
    )
    name = ",".join(["ticks=1000000000", *settings])
    run_dir, deadline = tmp_path / name / "seed0", time.monotonic() + 120
    while not list(run_dir.glob("events.*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error == "andante: interrupted\n"
    assert Checkpoint.read(run_dir / "checkpoint.pt").trainer["iteration"] > 0
    assert "--resume continues" in run_dir.with_suffix(".log").read_text()


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, capfd):
    folder = tmp_path / "runs"
    blocked = folder / f"policy.memory=mlp,{SHORT}" / "seed0"
    blocked.mkdir(parents=True)
    (blocked / "notes.txt").touch()
    assert main(words(folder, "policy.memory=mlp,gru")) == 1
    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1
    assert f"1 of 2 runs failed; {blocked}.log: andante: {blocked}: not empty" in captured.err
    assert [bool(row["return"]) for row in rows_of(folder)] == [False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["ppo.gama=0.9"], "no field 'gama' in 'ppo.gama'; fields: credit, "),
        (["gamma=0.9"], "no field 'gamma' in 'gamma'; fields: task, ticks, "),
        (["ppo.gamma.x=1"], "no field 'x' in 'ppo.gamma.x'; it has no fields"),
        (["ppo.gamma=0.9,many"], "ppo.gamma='many': Expected `float`, got `str` - at `$.ppo.gamma`"),
        (["ppo.gamma=0.9,1.5"], "gamma must be from 0 to 1, found 1.5"),
        (["policy.memory=gru,rnn"], "no memory cell 'rnn'; cells: gru, "),
        (["ppo.gamma"], "--set ppo.gamma: expected FIELD=VALUE"),
        (["seed=1"], "--set seed=1: a sweep has one task, and its seeds are given by --seeds"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_starts(tmp_path, capsys, settings, message):
    folder = tmp_path / "runs"
    assert main(words(folder, *settings)) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert not folder.exists()


def test_a_run_of_another_configuration_in_the_folder_is_named(swept, tmp_path, capsys):
    folder = tmp_path / "runs"
    shutil.copytree(swept, folder)
    path = folder / f"policy.memory=gru,{SHORT}" / "seed0" / "config.json"
    path.write_text(path.read_text().replace('"gamma": 0.995', '"gamma": 0.5'))
    assert main(words(folder, "policy.memory=gru")) == 1
    assert "ppo.gamma is 0.5 in this run, found 0.995" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({"ticks": "7"}, {"ticks": 7}),
        ({"device": "cpu"}, {"device": "cpu"}),
        ({"checkpoint_seconds": 2}, {"checkpoint_seconds": 2.0}),
    ],
)
def test_values_become_what_their_field_takes(values, changed):
    config = TrainConfig(task=TASK, ticks=1)
    assert with_values(config, values) == msgspec.structs.replace(config, **changed)


def test_values_reach_nested_fields_and_may_be_none():
    config = with_values(TrainConfig(task=TASK, ticks=1), {"ppo.value_clip": "0.3", "policy.chunk_size": 8})
    assert config.ppo.value_clip == 0.3 and config.policy.chunk_size == 8
    assert with_values(config, {"ppo.value_clip": None}).ppo.value_clip is None

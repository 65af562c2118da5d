"""A run can be killed at any moment, is continued exactly, and never goes on past a NaN."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from andante.runtime.cli import main
from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.train import PPO, Policy, PPOConfig
from andante.train.checkpoint import Checkpoint, load_run
from andante.train.replay import replay_dump

TASK = "pendulum-swingup-blind"
SMALL = (
    *("--num-worlds", "16", "--hidden-size", "16", "--chunk-size", "4"),
    *("--ppo.decisions", "8", "--ppo.minibatches", "2", "--ppo.critic-size", "16"),
)
TICKS_PER_ITERATION = 16 * 8 * 4


def words(run_dir: Path, iterations: int, *more: str) -> list[str]:
    ticks = str(iterations * TICKS_PER_ITERATION)
    return ["train", TASK, "--run-dir", str(run_dir), "--ticks", ticks, *SMALL, *more]


def start(*arguments: str) -> subprocess.Popen:
    command = [str(Path(sys.executable).with_name("andante")), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_checkpoints(number: int, folder: Path, process: subprocess.Popen) -> None:
    """Until so many were written since now."""
    path = folder / "checkpoint.pt"
    seen = {path.stat().st_mtime_ns} if path.exists() else set()
    deadline, number = time.monotonic() + 120, number + len(seen)
    while len(seen) < number:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        if path.exists():
            seen.add(path.stat().st_mtime_ns)
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("short") / "run"
    assert main(words(folder, 3)) == 0
    return folder


def assert_same(one, other, where: str = "checkpoint") -> None:
    assert type(one) is type(other), where
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{i}]")
    else:
        assert one == other, where


def assert_same_run(one: Path, other: Path) -> None:
    first, second = (Checkpoint.read(folder / "checkpoint.pt") for folder in (one, other))
    assert_same(first.trainer, second.trainer)
    assert_same(vars(first.best), vars(second.best))
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    assert results[0]["return"] == results[1]["return"]


ITERATIONS = 80


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = start(*words(folder, ITERATIONS))
    assert process.wait(timeout=300) == 0, process.stdout.read()
    return folder


def test_ctrl_c_writes_a_checkpoint_and_resuming_equals_no_interruption(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    process = start(*words(folder, ITERATIONS, "--checkpoint-seconds", "0.1"))
    wait_for_checkpoints(3, folder, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "--resume continues" in process.stdout.read()
    iteration = Checkpoint.read(folder / "checkpoint.pt").trainer["iteration"]
    assert 0 < iteration < ITERATIONS
    process = start("train", TASK, "--run-dir", str(folder), "--resume")
    assert process.wait(timeout=300) == 0, process.stdout.read()
    assert_same_run(folder, uninterrupted)


def test_sigkill_at_any_moment_leaves_a_checkpoint_that_resumes_exactly(uninterrupted, tmp_path):
    folder, moments = tmp_path / "run", random.Random(0)
    arguments = words(folder, ITERATIONS, "--checkpoint-seconds", "0.001")
    iterations = []
    for _ in range(3):
        process = start(*arguments)
        wait_for_checkpoints(2, folder, process)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.wait(timeout=60)
        iterations.append(Checkpoint.read(folder / "checkpoint.pt").trainer["iteration"])
        load_run(folder)
        arguments = ["train", TASK, "--run-dir", str(folder), "--resume"]
    assert iterations == sorted(iterations) and 0 < iterations[-1] < ITERATIONS
    process = start(*arguments)
    assert process.wait(timeout=300) == 0, process.stdout.read()
    assert_same_run(folder, uninterrupted)
    logs = EventAccumulator(str(folder)).Reload()
    steps = [event.step for event in logs.Scalars("reward_per_tick")]
    assert steps == [(i + 1) * TICKS_PER_ITERATION for i in range(ITERATIONS)]


def test_a_run_leaves_its_files_and_reads_back(short_run):
    assert {path.name for path in short_run.iterdir() if not path.name.startswith("events")} == {
        "checkpoint.pt",
        "config.json",
        "result.json",
    }
    run = load_run(short_run)
    assert run.config.policy.hidden_size == 16 and run.spec.name == TASK
    assert run.result.ticks == 3 * TICKS_PER_ITERATION
    assert json.loads((short_run / "result.json").read_text())["return"] == run.result.returned
    assert {"train.torch", "train.seed"} <= run.provenance.keys()
    best = Checkpoint.read(short_run / "checkpoint.pt").best
    assert_same(dict(run.policy.state_dict()), dict(best.policy))


def test_an_existing_run_is_refused_unless_told(short_run, capsys):
    before = (short_run / "checkpoint.pt").read_bytes()
    assert main(words(short_run, 3)) == 1
    assert f"{short_run}: holds a run" in capsys.readouterr().err
    assert main(words(short_run, 3, "--resume", "--overwrite")) == 1
    assert (short_run / "checkpoint.pt").read_bytes() == before


def test_overwriting_replaces_all_of_the_old_run(tmp_path):
    folder = tmp_path / "run"
    assert main(words(folder, 1)) == 0
    (folder / "dump.pt").touch()
    events = set(folder.glob("events.*"))
    assert main(words(folder, 1, "--overwrite", "--seed", "7")) == 0
    assert load_run(folder).config.seed == 7
    assert not (folder / "dump.pt").exists() and not events & set(folder.glob("events.*"))


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--memory", "mlp", "policy.memory is 'gru' in this run, found 'mlp'"),
        ("--ppo.gamma", "0.5", "ppo.gamma is 0.995 in this run, found 0.5"),
        ("--seed", "3", "seed is 0 in this run, found 3"),
    ],
)
def test_resuming_with_another_configuration_names_the_field(short_run, capsys, option, value, named):
    assert main(["train", TASK, "--run-dir", str(short_run), "--resume", option, value]) == 1
    assert named in capsys.readouterr().err


def test_resuming_another_task_is_refused(short_run, capsys):
    assert main(["train", "cartpole-swingup-blind", "--run-dir", str(short_run), "--resume"]) == 1
    assert f"task is '{TASK}' in this run, found 'cartpole-swingup-blind'" in capsys.readouterr().err


def test_a_longer_budget_continues_the_run(tmp_path):
    folder, other = tmp_path / "two", tmp_path / "three"
    assert main(words(folder, 2, "--evaluations", "1")) == 0
    assert main([*words(folder, 3), "--resume"]) == 0
    assert main(words(other, 3)) == 0
    assert_same(*(Checkpoint.read(path / "checkpoint.pt").trainer for path in (folder, other)))


def test_a_run_of_a_script_can_be_continued_from_the_command_line(tmp_path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make(TASK, num_worlds=16, seed=0)
    policy = Policy.for_env(env, hidden_size=16, chunk_size=4)
    ppo = PPO(env, policy, PPOConfig(decisions=8, minibatches=2, critic_size=16))
    assert ppo.learn(ticks=2 * TICKS_PER_ITERATION, run_dir=tmp_path / "script")
    with pytest.raises(AndanteError, match="holds a run"):
        ppo.learn(ticks=TICKS_PER_ITERATION, run_dir=tmp_path / "script")
    assert main([*words(tmp_path / "script", 3), "--resume"]) == 0
    assert main(words(tmp_path / "command", 3)) == 0
    assert_same(
        *(Checkpoint.read(tmp_path / name / "checkpoint.pt").trainer for name in ("script", "command"))
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a checkpoint"), (b"hello", "not a checkpoint"), (None, "not a checkpoint")],
)
def test_a_damaged_checkpoint_is_one_clear_error(short_run, tmp_path, content, message):
    whole = (short_run / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[:-100] if content is None else content)
    with pytest.raises(AndanteError, match=message):
        load_run(tmp_path)


def test_a_checkpoint_runs_no_code(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"schema": 1, "payload": Payload()}, tmp_path / "checkpoint.pt")
    with pytest.raises(AndanteError, match="not a checkpoint"):
        load_run(tmp_path)
    assert not (tmp_path / "owned").exists()


def test_a_folder_without_a_run_is_an_error(tmp_path):
    with pytest.raises(AndanteError, match=f"{tmp_path}: not a run folder"):
        load_run(tmp_path)


def poison_parameter(trainer):
    trainer["policy"]["log_std"][0] = torch.nan


def poison_optimizer(trainer):
    trainer["optimizer"]["state"][0]["exp_avg"][0] = torch.inf


def poison_critic(trainer):
    trainer["critic"]["head.bias"][0] = torch.nan


def poison_gradient(trainer):
    trainer["critic"]["head.weight"] *= 1e15


def poison_observation(trainer):
    trainer["scheduler"]["sources"]["joint_position"][3] = torch.nan


@pytest.mark.parametrize(
    ("poison", "name"),
    [
        (poison_parameter, "action"),
        (poison_optimizer, "policy loss"),
        (poison_critic, "value"),
        (poison_gradient, "gradient norm"),
        (poison_observation, "source 'joint_position'"),
    ],
)
def test_a_nan_stops_the_run_and_leaves_a_dump_that_replays(short_run, tmp_path, capsys, poison, name):
    checkpoint = Checkpoint.read(short_run / "checkpoint.pt")
    poison(checkpoint.trainer)
    checkpoint.write(tmp_path / "checkpoint.pt")
    before = (tmp_path / "checkpoint.pt").read_bytes()
    assert main([*words(tmp_path, 5), "--resume"]) == 1
    assert f"stopped at {3 * TICKS_PER_ITERATION} ticks: {name} is not finite" in capsys.readouterr().err
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert not (tmp_path / "result.json").exists()
    assert replay_dump(tmp_path / "dump.pt") == name
    assert main(["play", TASK, "--from-dump", str(tmp_path / "dump.pt")]) == 0
    assert f"{name} is not finite, as recorded" in capsys.readouterr().out


def test_a_checkpoint_is_no_dump_and_a_sound_dump_is_reported(short_run, tmp_path):
    with pytest.raises(AndanteError, match="not the dump of a run that stopped"):
        replay_dump(short_run / "checkpoint.pt")
    checkpoint = Checkpoint.read(short_run / "checkpoint.pt")
    checkpoint.reason = "reward"
    checkpoint.write(tmp_path / "dump.pt")
    with pytest.raises(AndanteError, match="expected reward not to be finite, but the iteration passed"):
        replay_dump(tmp_path / "dump.pt")

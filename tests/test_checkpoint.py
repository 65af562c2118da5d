"""A run can be killed at any moment, is continued exactly, and never goes on past a NaN."""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from andante.cli import main
from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.train import PPO, Policy, PPOConfig
from andante.train.checkpoint import SCHEMA, Checkpoint, load_run
from andante.train.evaluate import Evaluation, evaluate
from andante.train.files import write_atomically
from andante.train.metrics import read_metrics
from andante.train.replay import replay_dump
from andante.train.selection import challenge

TASK = "pendulum-swingup-blind"
SMALL = (
    *("--num-worlds", "16", "--hidden-size", "16", "--chunk-size", "4"),
    *("--ppo.decisions", "8", "--ppo.minibatches", "2", "--ppo.critic-size", "16"),
)
TICKS_PER_ITERATION = 16 * 8 * 4


def words(run_dir: Path, iterations: int, *more: str) -> list[str]:
    ticks = str(iterations * TICKS_PER_ITERATION)
    return ["train", TASK, "--run-dir", str(run_dir), "--ticks", ticks, "--threads", "2", *SMALL, *more]


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
    assert results[0]["return"] == pytest.approx(sum(results[0]["returns"]) / results[0]["episodes"])
    assert results[0]["return"] == results[1]["return"]
    metrics = [read_metrics(folder / "metrics.jsonl") for folder in (one, other)]
    for row in (*metrics[0], *metrics[1]):
        assert row.pop("seconds") > 0.0
    assert metrics[0] == metrics[1]
    assert [row["iteration"] for row in metrics[0]] == list(range(1, len(metrics[0]) + 1))


ITERATIONS = 80


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = start(*words(folder, ITERATIONS))
    assert process.wait(timeout=300) == 0, process.stdout.read()
    return folder


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"])
def test_an_interrupted_run_writes_a_checkpoint_and_resuming_equals_no_interruption(
    uninterrupted, tmp_path, ending
):
    folder = tmp_path / "run"
    process = start(*words(folder, ITERATIONS, "--checkpoint-seconds", "0.1"))
    wait_for_checkpoints(3, folder, process)
    process.send_signal(ending)
    assert process.wait(timeout=60) == 130
    assert "--resume continues" in process.stdout.read()
    iteration = Checkpoint.read(folder / "checkpoint.pt").trainer["iteration"]
    assert 0 < iteration < ITERATIONS
    assert read_metrics(folder / "metrics.jsonl")[-1]["iteration"] == iteration
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
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
        ".lock",
        "checkpoint.pt",
        "config.json",
        "learning_curve.png",
        "metrics.jsonl",
        "provenance.json",
        "result.json",
    }
    run = load_run(short_run)
    assert run.config.policy.hidden_size == 16 and run.spec.name == TASK
    assert run.result.ticks == 3 * TICKS_PER_ITERATION
    assert json.loads((short_run / "result.json").read_text())["return"] == run.result.returned
    assert json.loads((short_run / "provenance.json").read_text()) == run.provenance
    versions = {f"train.{name}" for name in ("andante", "torch", "mujoco", "numpy", "python")}
    assert versions | {"train.seed", "train.device"} <= run.provenance.keys()
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


def test_what_a_run_killed_as_it_began_has_left_is_replaced_on_request(tmp_path, capsys):
    left = [tmp_path / "checkpoint.pt.tmp", tmp_path / "checkpoint.pt.17.tmp", tmp_path / "config.json"]
    for path in left:
        path.touch()
    assert main(words(tmp_path, 1)) == 1
    assert "holds a run that was killed as it began" in capsys.readouterr().err
    assert main(words(tmp_path, 1, "--overwrite")) == 0
    assert load_run(tmp_path).result and not list(tmp_path.glob("*tmp"))


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_one_process_at_a_time_trains_in_a_folder(tmp_path, capsys, option):
    process = start(*words(tmp_path / "run", 10**6))
    try:
        wait_for_checkpoints(1, tmp_path / "run", process)
        assert main(words(tmp_path / "run", 1, option)) == 1
    finally:
        process.kill()
        process.wait(timeout=60)
    error = capsys.readouterr().err
    assert f"{tmp_path}/run: another process trains in this folder" in error and error.count("\n") == 1
    assert main(words(tmp_path / "run", 1, "--overwrite")) == 0


def test_a_process_killed_while_it_replaces_a_run_leaves_no_result_of_the_old_one(tmp_path, monkeypatch):
    assert main(words(tmp_path, 1)) == 0
    (tmp_path / "dump.pt").touch()

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", die)
    assert main(words(tmp_path, 1, "--overwrite", "--seed", "7")) == 130
    assert not (tmp_path / "result.json").exists() and not (tmp_path / "dump.pt").exists()


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
    assert f"{short_run}: of task '{TASK}', expected 'cartpole-swingup-blind'" in capsys.readouterr().err


def test_a_longer_budget_continues_the_run(tmp_path):
    folder, other = tmp_path / "two", tmp_path / "three"
    assert main(words(folder, 2, "--evaluations", "1")) == 0
    before = (folder / "result.json").read_text()
    assert main([*words(folder, 3), "--resume"]) == 0
    assert json.loads((folder / "config.json").read_text())["ticks"] == 3 * TICKS_PER_ITERATION
    assert (folder / "result.json").read_text() != before
    assert main(words(other, 3)) == 0
    assert_same(*(Checkpoint.read(path / "checkpoint.pt").trainer for path in (folder, other)))


@pytest.mark.parametrize(
    "teacher", ["{kind: success, start: {damping.hinge: 1}, episodes: 2}", "{kind: alp_gmm}"]
)
def test_resuming_goes_on_with_the_curriculum(tmp_path, teacher):
    worlds = tmp_path / "worlds.yaml"
    worlds.write_text(
        "damping: {hinge: {kind: uniform, low: 0.5, high: 2}}\n"
        "curriculum:\n"
        "  ranges: [damping.hinge]\n"
        f"  teacher: {teacher}\n"
    )
    more = ("--randomization", str(worlds), "--evaluations", "1")
    folder, other = tmp_path / "two", tmp_path / "one"
    assert main(words(folder, 6, *more)) == 0
    halfway = Checkpoint.read(folder / "checkpoint.pt").trainer["scheduler"]["env"]["randomizer"]
    assert main([*words(folder, 12), "--resume"]) == 0
    assert main(words(other, 12, *more)) == 0
    resumed, uninterrupted = (Checkpoint.read(path / "checkpoint.pt").trainer for path in (folder, other))
    assert_same(resumed, uninterrupted)
    with pytest.raises(AssertionError):
        assert_same(halfway["lessons"], resumed["scheduler"]["env"]["randomizer"]["lessons"])


def test_resuming_goes_on_with_pending_chunks(tmp_path):
    """The iteration ends in the middle of chunks: worlds have delays and horizons of their own."""
    worlds = tmp_path / "worlds.yaml"
    worlds.write_text(
        "inference_delay: {kind: choice, values: [0, 1]}\n"
        "execution_horizon: {kind: choice, values: [2, 3]}\n"
        "dropped_decisions: 0.2\n"
    )
    more = ("--randomization", str(worlds), "--evaluations", "1", "--committed-actions", "1")
    more += ("--execution-horizon", "3")
    folder, other = tmp_path / "two", tmp_path / "one"
    ticks = [str(iterations * 16 * 8 * 3) for iterations in (2, 4)]
    assert main([*words(folder, 2, *more), "--ticks", ticks[0]]) == 0
    assert main([*words(folder, 2), "--ticks", ticks[1], "--execution-horizon", "3", "--resume"]) == 0
    assert main([*words(other, 2, *more), "--ticks", ticks[1]]) == 0
    assert_same(*(Checkpoint.read(path / "checkpoint.pt").trainer for path in (folder, other)))


@pytest.mark.parametrize("iterations", [2, 3])
def test_a_finished_run_without_ticks_left_is_left_alone(short_run, capsys, iterations):
    before = {path.name: path.read_bytes() for path in short_run.iterdir()}
    assert main([*words(short_run, iterations), "--resume"]) == 1
    assert f"{short_run}: finished after {3 * TICKS_PER_ITERATION} ticks" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in short_run.iterdir()} == before


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_run_without_ticks_left_but_without_a_result_is_concluded(short_run, tmp_path, evaluated):
    checkpoint = Checkpoint.read(short_run / "checkpoint.pt")
    if not evaluated:
        checkpoint.best = None
    checkpoint.write(tmp_path / "checkpoint.pt")
    assert main(["train", TASK, "--run-dir", str(tmp_path), "--resume"]) == 0
    run = load_run(tmp_path)
    assert run.evaluated and run.result.ticks == 3 * TICKS_PER_ITERATION
    if evaluated:
        assert run.result.returned == load_run(short_run).result.returned


def make_trainer() -> PPO:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make(TASK, num_worlds=16, seed=0)
    policy = Policy.for_env(env, hidden_size=16, chunk_size=4)
    return PPO(env, policy, PPOConfig(decisions=8, minibatches=2, critic_size=16), threads=2)


def test_a_trainer_trains_one_run(tmp_path):
    ppo = make_trainer()
    assert ppo.learn(ticks=TICKS_PER_ITERATION, run_dir=tmp_path / "one")
    with pytest.raises(AndanteError, match=f"two: a run begins with a new trainer, .* {TICKS_PER_ITERATION}"):
        ppo.learn(ticks=TICKS_PER_ITERATION, run_dir=tmp_path / "two")
    assert not (tmp_path / "two").exists()
    with pytest.raises(AndanteError, match="holds a run"):
        make_trainer().learn(ticks=TICKS_PER_ITERATION, run_dir=tmp_path / "one")


def test_a_run_may_train_in_a_thread(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        learned = pool.submit(make_trainer().learn, ticks=TICKS_PER_ITERATION, run_dir=tmp_path / "run")
        assert learned.result(timeout=120)
    assert load_run(tmp_path / "run").result


def test_the_best_policy_has_won_twice_in_different_episodes_and_is_reported_in_others(tmp_path, monkeypatch):
    returns = [(1.0, 2.0), (3.0, 0.5), (0.5, None), (5.0, 4.0), (4.0, None), (9.0, 4.0)]
    waiting, policies, seeds = [each for pair in returns for each in pair if each is not None], [], []

    def play(policy, task, episodes, seed, **options):
        seeds.append(seed)
        if not waiting:
            return evaluate(policy, task, episodes, seed, **options)
        policies.append({name: value.clone() for name, value in policy.state_dict().items()})
        return Evaluation(torch.full((episodes,), waiting.pop(0)))

    monkeypatch.setattr("andante.train.selection.evaluate", play)
    ppo = make_trainer()
    assert ppo.learn(ticks=6 * TICKS_PER_ITERATION, run_dir=tmp_path / "run")
    run = load_run(tmp_path / "run")
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["return"] for row in rows] == [first for first, _ in returns]
    assert [row["best_return"] for row in rows] == [1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    assert Checkpoint.read(tmp_path / "run" / "checkpoint.pt").best.returned == 4.0
    first, second, result = seeds[0], seeds[1], run.result.seed
    assert seeds == [first, second, first, second, first, first, second, first, first, second, result]
    assert len({run.config.seed, first, second, result}) == 4
    assert_same(dict(run.policy.state_dict()), policies[5])
    expected = evaluate(run.policy, TASK, run.result.episodes, result).returns.mean().item()
    assert run.result.returned == expected
    # The trainer's own policy is still the last one.
    assert_same(dict(ppo.policy.state_dict()), policies[-1])
    assert not torch.equal(policies[5]["decoder.means.weight"], policies[-1]["decoder.means.weight"])


def test_a_run_of_a_script_can_be_continued_from_the_command_line(tmp_path):
    assert make_trainer().learn(ticks=2 * TICKS_PER_ITERATION, run_dir=tmp_path / "script")
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


@pytest.mark.parametrize("content", [{"schema": 3}, {"schema": 3, "config": 5, "best": None}, {}, [1]])
def test_a_foreign_content_of_a_checkpoint_is_one_clear_error(tmp_path, content):
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(AndanteError, match=f"{tmp_path}/checkpoint.pt: not a checkpoint"):
        load_run(tmp_path)


def cut_policy(checkpoint):
    checkpoint.trainer["policy"]["encoder.0.weight"] = torch.zeros(16, 5)


def cut_best(checkpoint):
    checkpoint.best.policy["decoder.means.bias"] = torch.zeros(3)


def lose_best(checkpoint):
    del checkpoint.best.policy["log_std"]


def add_layer(checkpoint):
    checkpoint.best.policy["memory.9.weight"] = torch.zeros(1)


def widen(checkpoint):
    policy = msgspec.structs.replace(checkpoint.config.policy, hidden_size=32)
    checkpoint.config = msgspec.structs.replace(checkpoint.config, policy=policy)


def cut_state(checkpoint):
    checkpoint.trainer["scheduler"]["h"] = torch.zeros(16, 3)


def replace_critic(checkpoint):
    checkpoint.trainer["critic"]["head.bias"] = 3.0


RESUMED, READ = "resumed", "read"


@pytest.mark.parametrize(
    ("damage", "noticed", "message"),
    [
        (cut_policy, RESUMED, "policy.encoder.0.weight: expected a tensor [16, 2], found [16, 5]"),
        (cut_best, READ, "best.policy.decoder.means.bias: expected a tensor [4], found [3]"),
        (lose_best, READ, "best.policy.log_std is missing"),
        (add_layer, READ, "best.policy.memory.9.weight is not known here"),
        (widen, READ, "best.policy.encoder.0.weight: expected a tensor [32, 2], found [16, 2]"),
        (cut_state, RESUMED, "scheduler.h: expected a tensor [16, 16], found [16, 3]"),
        (replace_critic, RESUMED, "critic.head.bias: expected a tensor [1], found float"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(short_run, tmp_path, capsys, damage, noticed, message):
    checkpoint = Checkpoint.read(short_run / "checkpoint.pt")
    damage(checkpoint)
    checkpoint.write(tmp_path / "checkpoint.pt")
    ticks = str(5 * TICKS_PER_ITERATION)
    command = {
        RESUMED: ["train", TASK, "--run-dir", str(tmp_path), "--resume", "--ticks", ticks],
        READ: ["evaluate", str(tmp_path)],
    }
    assert main(command[noticed]) == 1
    assert capsys.readouterr().err == f"andante: {tmp_path}/checkpoint.pt: {message}\n"


def test_without_space_the_old_file_stays_and_nothing_else(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(AndanteError, match=f"{path}: not written: File too large"):
            write_atomically(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_run_without_space_ends_in_one_line(tmp_path):
    code = "import sys; from andante.cli import main; sys.exit(main(sys.argv[1:]))"
    shell = ["bash", "-c", 'ulimit -f 16; exec "$0" -c "$@"', sys.executable, code]
    command = [*shell, *words(tmp_path / "run", 1)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"andante: {tmp_path}/run")
    assert "Traceback" not in result.stderr and not list((tmp_path / "run").glob("*.tmp"))


def test_a_checkpoint_runs_no_code(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"schema": SCHEMA, "payload": Payload()}, tmp_path / "checkpoint.pt")
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
    checkpoint.config = msgspec.structs.replace(checkpoint.config, ticks=5 * TICKS_PER_ITERATION)
    checkpoint.write(tmp_path / "checkpoint.pt")
    before = (tmp_path / "checkpoint.pt").read_bytes()
    assert main([*words(tmp_path, 5), "--resume"]) == 1
    assert f"stopped at {3 * TICKS_PER_ITERATION} ticks: {name} is not finite" in capsys.readouterr().err
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert not (tmp_path / "result.json").exists()
    assert replay_dump(tmp_path / "dump.pt") == name
    assert main(["play", TASK, "--from-dump", str(tmp_path / "dump.pt")]) == 0
    assert f"{name} is not finite, as recorded" in capsys.readouterr().out


def test_a_nan_in_an_evaluation_stops_the_run_and_leaves_a_dump_that_replays(tmp_path, monkeypatch, capsys):
    """As where only the world of an evaluation leads the policy out of all bounds."""

    def diverge(policy, config, best):
        broken = copy.deepcopy(policy)
        broken.decoder.means.bias.data.fill_(torch.inf)
        return challenge(broken, config, best)

    for module in ("learn", "replay"):
        monkeypatch.setattr(f"andante.train.{module}.challenge", diverge)
    assert main(words(tmp_path / "run", 3)) == 1
    assert f"stopped at {TICKS_PER_ITERATION} ticks: action is not finite" in capsys.readouterr().err
    assert Checkpoint.read(tmp_path / "run" / "checkpoint.pt").best is None
    assert Checkpoint.read(tmp_path / "run" / "dump.pt").trainer["iteration"] == 0
    assert replay_dump(tmp_path / "run" / "dump.pt") == "action"
    monkeypatch.undo()
    with pytest.raises(AndanteError, match="expected action not to be finite, but the iteration passed"):
        replay_dump(tmp_path / "run" / "dump.pt")


def test_a_checkpoint_is_no_dump_and_a_sound_dump_is_reported(short_run, tmp_path):
    with pytest.raises(AndanteError, match="not the dump of a run that stopped"):
        replay_dump(short_run / "checkpoint.pt")
    checkpoint = Checkpoint.read(short_run / "checkpoint.pt")
    checkpoint.reason = "reward"
    checkpoint.write(tmp_path / "dump.pt")
    with pytest.raises(AndanteError, match="expected reward not to be finite, but the iteration passed"):
        replay_dump(tmp_path / "dump.pt")

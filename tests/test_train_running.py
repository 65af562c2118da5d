"""What a run folder holds, what a run may begin with, and whether its result is what was to be expected."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from conftest import andante

from andante.cli import main
from andante.runtime.errors import AndanteError
from andante.sim.spec import FAMILIES, TASKS, get_spec
from andante.sim.spec.describe import describe
from andante.train.checkpoint import Best, Checkpoint, load_run
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.curve import draw_learning_curve
from andante.train.files import CHECKPOINT
from andante.train.metrics import MetricsFile, read_metrics
from andante.train.ppo import PPO
from andante.train.recipes import RECIPES, expected_return, get_recipe
from andante.train.warm_start import warm_start

TASK = "pendulum-swingup-blind"
TINY = TrainConfig(
    task=TASK,
    ticks=512,
    num_worlds=4,
    evaluations=1,
    policy=PolicyConfig(hidden_size=8, chunk_size=4),
    ppo=PPOConfig(decisions=8, epochs=1, minibatches=2, critic_size=8),
)


@pytest.fixture(autouse=True)
def keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def tiny_recipe(monkeypatch) -> TrainConfig:
    """The pendulum's recipe, while the test lasts."""
    monkeypatch.setitem(RECIPES, TASK, TINY)
    return TINY


def expect(monkeypatch, expected: tuple[float, float] | None) -> None:
    monkeypatch.setitem(TASKS, TASK, dataclasses.replace(TASKS[TASK], expected=expected))


def write_run(folder: Path, config: TrainConfig, shift: float = 0.0) -> Path:
    """A run that has not trained; its best policy and its critic are `shift` from the initial ones."""
    trainer = PPO.from_config(config)
    with torch.no_grad():
        for parameter in (*trainer.policy.parameters(), *trainer.critic.parameters()):
            parameter.add_(shift)
    trainer.policy.normalizer.mean.fill_(shift)
    best = Best(1.0, trainer.policy.state_dict())
    folder.mkdir()
    Checkpoint(config, {}, trainer.state_dict(), best, seconds=1.0).write(folder / CHECKPOINT)
    return folder


# Metrics


def test_metrics_after_the_checkpoint_or_cut_by_a_kill_are_written_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsFile(path, 0)
    for iteration in (1, 2, 3):
        log.write({"iteration": iteration, "ticks": 10 * iteration, "kl": 0.1})
    log.close()
    path.write_bytes(path.read_bytes() + b'{"iteration":4,"ti')
    assert [row["iteration"] for row in read_metrics(path)] == [1, 2, 3]
    log = MetricsFile(path, 2)
    log.write({"iteration": 3, "ticks": 30, "kl": 0.7, "return": 5.0})
    log.close()
    rows = read_metrics(path)
    assert [(row["iteration"], row["kl"]) for row in rows] == [(1, 0.1), (2, 0.1), (3, 0.7)]
    assert rows[2]["return"] == 5.0


def test_a_wrong_line_of_metrics_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration":1,"ticks":1}\n{"iteration":2}\n')
    with pytest.raises(AndanteError, match=f"{path}: line 2: .*missing required field `ticks`"):
        read_metrics(path)


def test_the_curve_draws_what_there_is(tmp_path):
    draw_learning_curve(tmp_path, "nothing", None)
    assert not list(tmp_path.iterdir())
    log = MetricsFile(tmp_path / "metrics.jsonl", 0)
    for i in range(1, 4):
        found = {
            "reward_per_tick": 0.1,
            "reward/a": 0.3,
            "reward/b": float("nan"),
            "kl": 0.1,
            "action_std": 1,
        }
        log.write(
            {"iteration": i, "ticks": i, **found, **({"return": i, "best_return": i} if i == 2 else {})}
        )
    log.close()
    pictures = []
    for expected in (None, (1.0, 3.0)):
        draw_learning_curve(tmp_path, "some", expected)
        pictures.append((tmp_path / "learning_curve.png").read_bytes())
    assert pictures[0] != pictures[1] and all(picture.startswith(b"\x89PNG") for picture in pictures)


# Expected results


def test_an_expected_range_holds_for_the_recipe_with_any_seed_and_for_nothing_else(monkeypatch):
    expect(monkeypatch, (1.0, 2.0))
    recipe = get_recipe(TASK)
    replace = msgspec.structs.replace
    assert expected_return(replace(recipe, seed=9, threads=2, checkpoint_seconds=1.0)) == (1.0, 2.0)
    assert expected_return(replace(recipe, ticks=recipe.ticks + 1)) is None
    assert expected_return(replace(recipe, policy=replace(recipe.policy, memory="mlp"))) is None
    expect(monkeypatch, None)
    assert expected_return(recipe) is None


@pytest.mark.parametrize("name", [*TASKS, *(form for form in FAMILIES if "/" not in form)])
def test_every_shipped_task_says_what_to_expect_of_its_recipe(name):
    low, high = expected_return(get_recipe(name))
    assert low < high


def test_a_task_tells_what_to_expect():
    low, high = get_spec(TASK).expected
    assert f"return {low:g} to {high:g} from `andante train {TASK} --run-dir DIR`" in describe(get_spec(TASK))
    listed = [line.split() for line in andante("tasks").stdout.splitlines()]
    assert [TASK, f"{low:g}", "to", f"{high:g}"] in [line[:4] for line in listed]


@pytest.mark.parametrize(
    ("expected", "status", "verdict"), [((0.0, 500.0), 0, ""), ((400.0, 500.0), 1, "not ")]
)
def test_check_recipe_trains_and_compares(
    tiny_recipe, monkeypatch, tmp_path, capsys, expected, status, verdict
):
    expect(monkeypatch, expected)
    folder = tmp_path / "run"
    assert main(["check-recipe", TASK, "--seed", "3", "--run-dir", str(folder)]) == status
    run = load_run(folder)
    assert run.config == msgspec.structs.replace(tiny_recipe, seed=3)
    assert run.result.expected == expected and run.result.as_expected is (status == 0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{TASK}, seed 3: return {run.result.returned:.2f} is {verdict}in the expected range, "
        f"{expected[0]:g} to 500"
    )


def test_check_recipe_goes_on_where_it_was_interrupted(tiny_recipe, monkeypatch, tmp_path, capsys):
    expect(monkeypatch, (0.0, 500.0))
    words = ["check-recipe", TASK, "--run-dir", str(tmp_path / "run")]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == first.splitlines(keepends=True)[-1]
    (tmp_path / "run" / "result.json").unlink()
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first.splitlines()[-1]
    assert main([*words, "--seed", "3"]) == 1
    assert f"{tmp_path / 'run'}: seed is 0 in this run, found 3" in capsys.readouterr().err


def test_check_recipe_keeps_nothing_unless_told(tiny_recipe, monkeypatch, tmp_path):
    expect(monkeypatch, (0.0, 500.0))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["check-recipe", TASK]) == 0
    assert not list(tmp_path.iterdir())


def test_a_recipe_without_an_expected_result_is_not_trained(tiny_recipe, monkeypatch, tmp_path, capsys):
    expect(monkeypatch, None)
    assert main(["check-recipe", TASK, "--run-dir", str(tmp_path / "run")]) == 1
    assert f"task {TASK!r} does not say what return to expect" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_repeats_the_configuration_of_another(tmp_path, capsys):
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(TINY))
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    assert main(["train", TASK, *words, "--seed", "4"]) == 0
    assert load_run(tmp_path / "run").config == msgspec.structs.replace(TINY, seed=4)
    assert main(["train", "tmaze", *words]) == 1
    assert f"config.json: of task {TASK!r}, expected 'tmaze'" in capsys.readouterr().err


# Warm start


def test_a_run_begins_with_the_best_policy_of_another_and_says_so(tmp_path):
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(TINY))
    source = write_run(tmp_path / "source", TINY, shift=0.25)
    words = ["--config", str(tmp_path / "config.json"), "--ticks", "1", "--ppo.learning-rate", "1e-9"]
    words += ["--ppo.max-learning-rate", "1e-9", "--init-from", str(source)]
    assert main(["train", TASK, "--run-dir", str(tmp_path / "run"), *words]) == 0
    trained, given = load_run(tmp_path / "run"), load_run(source)
    for name, value in given.policy.named_parameters():
        torch.testing.assert_close(trained.policy.get_parameter(name), value, atol=1e-4, rtol=0)
    noted = json.loads((tmp_path / "run" / "provenance.json").read_text())["train.init_from"]
    assert noted == f"{source}: {TASK}, 0 ticks, with its critic" == trained.provenance["train.init_from"]


def test_a_warm_start_takes_the_normaliser_and_leaves_the_optimiser_new(tmp_path):
    source = write_run(tmp_path / "source", TINY, shift=0.25)
    trainer = PPO.from_config(TINY)
    warm_start(trainer, source)
    assert (trainer.policy.normalizer.mean == 0.25).all()
    saved = Checkpoint.read(source / CHECKPOINT).trainer["critic"]
    assert all(torch.equal(value, saved[name]) for name, value in trainer.critic.state_dict().items())
    assert not trainer.optimizer.state and trainer.ticks == 0


def test_a_critic_of_another_size_stays_new(tmp_path):
    source = write_run(tmp_path / "source", TINY, shift=0.25)
    wider = msgspec.structs.replace(TINY, ppo=msgspec.structs.replace(TINY.ppo, critic_size=9))
    trainer = PPO.from_config(wider)
    before = {name: value.clone() for name, value in trainer.critic.state_dict().items()}
    assert warm_start(trainer, source).endswith("without its critic")
    assert all(torch.equal(value, before[name]) for name, value in trainer.critic.state_dict().items())


def test_a_policy_of_flat_ground_goes_on_to_rough_ground(tmp_path):
    flat = msgspec.structs.replace(TINY, task="quadruped-velocity")
    source = write_run(tmp_path / "source", flat, shift=0.25)
    trainer = PPO.from_config(msgspec.structs.replace(flat, task="quadruped-velocity-rough"))
    assert warm_start(trainer, source).startswith(f"{source}: quadruped-velocity, ")
    given = load_run(source).policy.state_dict()
    assert all(torch.equal(value, given[name]) for name, value in trainer.policy.state_dict().items())


@pytest.mark.parametrize(
    ("task", "policy", "message"),
    [
        (TASK, {"memory": "lstm"}, "policy.memory: expected 'lstm', found 'gru'"),
        (TASK, {"decoder": "gru"}, "policy.decoder: expected 'gru', found 'mlp'"),
        (TASK, {"hidden_size": 9}, "policy.hidden_size: expected 9, found 8"),
        (
            "cartpole-swingup-blind",
            {},
            r"task.sources: expected \['cart_position', 'pole_position'\], found \['joint_position'\]",
        ),
        ("tmaze/3", {}, r"task.control_period_ns: expected \d+, found 20000000"),
    ],
)
def test_a_policy_that_does_not_fit_is_one_line_and_changes_nothing(tmp_path, task, policy, message):
    source = write_run(tmp_path / "source", TINY, shift=0.25)
    network = msgspec.structs.replace(TINY.policy, **policy)
    trainer = PPO.from_config(msgspec.structs.replace(TINY, task=task, policy=network))
    before = {name: value.clone() for name, value in trainer.policy.state_dict().items()}
    with pytest.raises(AndanteError, match=f"{source}: its policy does not fit: {message}$"):
        warm_start(trainer, source)
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.state_dict().items())


def test_a_source_that_differs_is_named_to_the_field(tmp_path):
    source = write_run(tmp_path / "source", TINY)
    trainer = PPO.from_config(TINY)
    spec = trainer.policy.spec
    slower = msgspec.structs.replace(spec.sources[0], max_age_ns=7)
    trainer.policy.spec = dataclasses.replace(spec, sources=(slower,))
    with pytest.raises(
        AndanteError, match=r"task.sources.joint_position.max_age_ns: expected 7, found 5\d+$"
    ):
        warm_start(trainer, source)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--init-from", "nowhere"], "nowhere: not a run folder"),
        (["--init-from", "{source}", "--memory", "lstm"], "policy.memory: expected 'lstm', found 'gru'"),
        (["--init-from", "{source}", "--resume"], "a run that is resumed has its policy"),
    ],
)
def test_what_a_run_cannot_begin_with_leaves_its_folder_alone(tmp_path, capsys, more, message):
    source = write_run(tmp_path / "source", TINY)
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(TINY))
    folder = source if "--resume" in more else tmp_path / "run"
    before = sorted(path.name for path in folder.glob("*"))
    words = ["--config", str(tmp_path / "config.json"), *(word.format(source=source) for word in more)]
    assert main(["train", TASK, "--run-dir", str(folder), *words]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(path.name for path in folder.glob("*")) == before


# Environment and other packages


def test_threads_are_set_before_torch_is_loaded(tmp_path):
    code = (
        "import os, sys\n"
        "def note(event, arguments):\n"
        "    if event == 'import' and arguments[0] == 'torch' and 'torch' not in sys.modules:\n"
        "        print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('OMP_NUM_THREADS'), flush=True)\n"
        "        os._exit(0)\n"
        "sys.addaudithook(note)\n"
        "from andante.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    for words in (
        ["train", TASK, "--run-dir", "new", "--threads", "2"],
        ["check-recipe", TASK],
        ["sweep", TASK, "--run-dir", "many"],
    ):
        command = [sys.executable, "-c", code, *words]
        shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert shown.stdout == "PASSIVE 1\n", shown.stderr


def test_weights_and_biases_gets_every_iteration_also_after_a_resume(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(TINY))
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run"), "--wandb", "demo"]
    assert main(["train", TASK, *words]) == 0
    assert main(["train", TASK, *words, "--ticks", "768", "--resume"]) == 0
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2 and len({file.name for file in files}) == 1
    logged = [file.read_bytes().count(b"reward_per_tick") for file in files]
    rows = len(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert rows == 6 and logged[0] >= 4 and logged[1] >= 2


def test_without_weights_and_biases_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", TASK, "--run-dir", str(tmp_path / "run"), "--wandb", "demo"]) == 1
    assert "--wandb needs wandb, which is not installed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

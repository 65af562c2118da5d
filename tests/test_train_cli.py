"""`andante train`: options, recipes, and one clear line for what is wrong."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import docstring_parser
import msgspec
import pytest

from andante.cli import COMMANDS, main
from andante.runtime.errors import AndanteError
from andante.sim.spec import TASKS, get_spec
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.files import decode_config, read_config, write_json
from andante.train.recipes import RECIPES, get_recipe, recipe_options

TASK = "pendulum-swingup-blind"


def test_recipe_as_options_is_the_recipe():
    def field(option: str) -> tuple[str, list[str]]:
        name, *values = option.removeprefix("--").split(" ")
        return name.replace("-", "_"), values

    recipe = get_recipe("quadruped-velocity")
    options = dict(map(field, recipe_options("quadruped-velocity")))
    assert options["ticks"] == ["2500000"] and options["ppo.smoothness"] == ["0.0", "0.0", "0.0"]
    assert options["hidden_size"] == [str(recipe.policy.hidden_size)]
    fields = {f"ppo.{name}" for name in PPOConfig.__struct_fields__} | {*PolicyConfig.__struct_fields__}
    fields |= {*TrainConfig.__struct_fields__} - {"task", "policy", "ppo", "randomization"}
    assert set(options) == fields


def test_a_described_task_tells_its_recipe(capsys):
    assert main(["tasks", TASK]) == 0
    told = capsys.readouterr().out
    assert "--ticks 3000000  --num-worlds 256" in told and f"`andante train {TASK}`" in told


def test_every_task_has_a_recipe_for_itself():
    assert [get_spec(name).name for name in RECIPES] == list(RECIPES)
    assert all(get_recipe(task).task == task for task in (*TASKS, "tmaze/7"))


def test_configuration_survives_json():
    config = get_recipe(TASK)
    assert decode_config(msgspec.json.encode(config), "here") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task": "x", "ticks": 1, "gama": 2}', "here: Object contains unknown field `gama`"),
        ('{"task": "x", "ticks": "many"}', r"here: Expected `int`, got `str` - at `\$.ticks`"),
        ('{"task": "x", "ticks": 1, "ppo": {"credit": "both"}}', r"here: Invalid enum value 'both'"),
        ("{", "here: Input data was truncated"),
        ('{"task": "x", "ticks": -1}', "here: ticks must be positive, found -1"),
    ],
)
def test_a_wrong_configuration_file_names_the_key(text, message):
    with pytest.raises(AndanteError, match=message):
        decode_config(text, "here")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PolicyConfig(chunk_size=0), "chunk_size must be positive, found 0"),
        (lambda: PolicyConfig(chunk_size=2, execution_horizon=3), "at most chunk_size, 2, found 3"),
        (lambda: PPOConfig(gae_lambda=1.5), "gae_lambda must be from 0 to 1, found 1.5"),
        (lambda: PPOConfig(gamma=1.0), "gamma must be below 1"),
        (lambda: TrainConfig(task=TASK, ticks=-1), "ticks must be positive, found -1"),
        (lambda: PolicyConfig(initial_std=math.inf), "initial_std must be finite, found inf"),
        (lambda: PPOConfig(entropy_bonus=math.nan), "entropy_bonus must be finite, found nan"),
        (lambda: PPOConfig(entropy_bonus=-0.1), "entropy_bonus must not be negative, found -0.1"),
        (lambda: PPOConfig(max_grad_norm=math.inf), "max_grad_norm must be finite, found inf"),
        (lambda: TrainConfig(task=TASK, ticks=1, checkpoint_seconds=math.inf), "checkpoint_seconds must be"),
        (lambda: TrainConfig(task=TASK, ticks=1, seed=-1), r"seed must be 0 to 2\^62 - 1, found -1"),
        (lambda: TrainConfig(task=TASK, ticks=1, seed=2**64), "seed must be 0 to"),
        (lambda: TrainConfig(task=TASK, ticks=1, num_worlds=5), "multiple of ppo.minibatches, 8, found 5"),
    ],
)
def test_an_impossible_value_names_the_field(build, message):
    with pytest.raises(AndanteError, match=message):
        build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["pendulum"], "no task 'pendulum'; tasks: pendulum-swingup-blind, cartpole-swingup-blind"),
        ([TASK, "--memory", "rnn"], "no memory cell 'rnn'; cells: gru, lstm, "),
        ([TASK, "--decoder", "rnn"], "no chunk decoder 'rnn'; decoders: mlp, gru"),
        ([TASK, "--chunk-size", "4", "--execution-horizon", "6"], "at most chunk_size, 4, found 6"),
        ([TASK, "--resume"], "no such checkpoint"),
    ],
)
def test_a_wrong_option_is_one_line_and_leaves_no_folder(options, message, tmp_path, capsys):
    assert main(["train", *options, "--run-dir", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "run").touch()
    assert main(["train", TASK, "--run-dir", str(tmp_path / "run")]) == 1
    assert "expected a folder, found a file" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["/proc/run", "/dev/null/run"])
def test_a_folder_that_cannot_be_made_is_one_line(folder, capsys):
    assert main(["train", TASK, "--run-dir", folder]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"andante: {folder}") and error.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_folder_of_something_else_is_left_alone(options, tmp_path, capsys):
    for name in ("result.json", "config.json"):
        (tmp_path / name).write_text("precious")
    assert main(["train", TASK, "--run-dir", str(tmp_path), *options]) == 1
    assert f"{tmp_path}: not empty, and holds no run" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("result.json", "config.json"), "precious"
    )


def test_unknown_option_is_a_usage_error(tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main(["train", TASK, "--run-dir", str(tmp_path), "--ppo.gama", "0.9"])
    assert stopped.value.code == 2


def test_help_explains_every_field_without_torch():
    code = "import sys; from andante.cli import main\ntry: main(['train', '--help'])\n"
    code += "except SystemExit: pass\nassert 'torch' not in sys.modules"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for config in (PolicyConfig, PPOConfig, TrainConfig):
        for name in config.__struct_fields__:
            if name not in ("task", "policy", "ppo"):
                assert name.replace("_", "-") in shown
    assert "Discount per tick." in shown


@pytest.mark.parametrize("command", ["train", "evaluate", "sweep", "check-recipe", "play", "run", "verify"])
def test_help_has_no_line_breaks_in_mid_sentence(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "600")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    described = [getattr(import_module(f"andante.{COMMANDS[command].module}"), command.replace("-", "_"))]
    described += [PolicyConfig, PPOConfig] if command == "train" else []
    for owner in described:
        for param in docstring_parser.parse_from_object(owner).params:
            if param.arg_name != "options":
                assert " ".join(param.description.split()) in shown


TINY = TrainConfig(
    task="tmaze/3",
    ticks=16,
    policy=PolicyConfig(memory="mlp", hidden_size=8, chunk_size=2, execution_horizon=1),
    ppo=PPOConfig(decisions=4, minibatches=2, critic_size=8, value_clip=0.2, final_std=0.1),
    num_worlds=4,
    evaluations=1,
)


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory) -> Path:
    """Of `TINY`, whose `tiny.json` is beside it."""
    folder = tmp_path_factory.mktemp("tiny")
    write_json(folder / "tiny.json", TINY)
    words = ["--config", str(folder / "tiny.json"), "--run-dir", str(folder / "run")]
    assert main(["train", TINY.task, *words]) == 0
    return folder / "run"


def test_what_is_optional_can_be_switched_off(tiny_run, tmp_path):
    assert read_config(tiny_run / "config.json") == TINY
    words = ["--execution-horizon", "None", "--ppo.value-clip", "None", "--ppo.final-std", "None"]
    words += ["--config", str(tiny_run.parent / "tiny.json"), "--run-dir", str(tmp_path / "run")]
    assert main(["train", TINY.task, *words]) == 0
    found = json.loads((tmp_path / "run" / "config.json").read_text())
    assert found["policy"]["execution_horizon"] is None
    assert found["ppo"]["value_clip"] is None and found["ppo"]["final_std"] is None
    optional = [
        field.name
        for config in (PolicyConfig, PPOConfig, TrainConfig)
        for field in msgspec.structs.fields(config)
        if field.default is None
    ]
    assert optional == ["execution_horizon", "value_clip", "final_std"]


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"seed": 3}, [], "seed is 0 in this run, found 3"),
        ({"ppo": {"gamma": 0.5}}, [], "ppo.gamma is 0.995 in this run, found 0.5"),
        ({"ppo": {"gamma": 0.5}}, ["--ppo.gamma", "0.995"], "finished after 16 ticks, budget 16"),
        (
            {"policy": {"execution_horizon": None}},
            [],
            "policy.execution_horizon is 1 in this run, found None",
        ),
        ({}, ["--execution-horizon", "None"], "policy.execution_horizon is 1 in this run, found None"),
        (
            {"randomization": {"action_delay": 1}},
            [],
            "randomization.action_delay is None in this run, found 1",
        ),
        ({"task": "tmaze/4"}, [], "wanted.json: of task 'tmaze/4', expected 'tmaze/3'"),
    ],
)
def test_a_resumed_run_has_the_configuration_that_is_wanted(
    tiny_run, tmp_path, changed, options, message, capsys
):
    content = json.loads((tiny_run / "config.json").read_text())
    for name, value in changed.items():
        content[name] = content[name] | value if isinstance(value, dict) else value
    (tmp_path / "wanted.json").write_text(json.dumps(content))
    words = ["--config", str(tmp_path / "wanted.json"), "--run-dir", str(tiny_run), "--resume"]
    assert main(["train", TINY.task, *words, *options]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_line_at_every_evaluation_tells_the_time_elapsed_and_left(tiny_run, tmp_path, monkeypatch, capsys):
    seconds = itertools.count()
    monkeypatch.setattr("andante.train.learn.time", SimpleNamespace(monotonic=seconds.__next__))
    content = json.loads((tiny_run / "config.json").read_text()) | {"evaluations": 4}
    (tmp_path / "often.json").write_text(json.dumps(content))
    words = ["train", TINY.task, "--config", str(tmp_path / "often.json"), "--run-dir", str(tmp_path / "run")]
    assert main(words) == 0
    assert main([*words, "--resume", "--ticks", "64"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "elapsed" in line]
    told = [re.search(r"^ +(\d+) ticks .*  00:(\d+) elapsed, about (\S+) left$", line) for line in lines]
    assert [line[1] for line in told] == ["16", "32", "48", "64"]
    elapsed = int(told[1][2])
    assert 0 < elapsed < int(told[2][2])
    assert told[1][3] == "{:02d}:{:02d}".format(*divmod(2 * elapsed, 60)) and told[-1][3] == "00:00"


def test_a_resumed_run_takes_the_ticks_of_the_configuration_that_is_wanted(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    write_json(tmp_path / "longer.json", msgspec.structs.replace(TINY, ticks=32))
    words = ["--config", str(tmp_path / "longer.json"), "--run-dir", str(tmp_path / "run"), "--resume"]
    assert main(["train", TINY.task, *words]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["ticks"] == 32

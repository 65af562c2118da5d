"""The command line: what goes wrong is one line and a non-zero exit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from conftest import andante
from small_policy import write_small_policy
from tiny_policy import tiny_contract, tiny_model, tiny_policy, tiny_trace

from andante.cli import COMMANDS, main
from andante.export.seal import seal
from andante.runtime.artifact import Trace
from andante.runtime.profile import SHIPPED
from andante.sim.closed_loop import closed_loop


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_policy())
    return path


def test_installed_command_tells_its_version_and_its_commands():
    assert andante("--version").stdout == "0.1.0\n"
    usage = andante("--help")
    assert usage.returncode == 0
    assert all(f"  {name} " in usage.stdout for name in COMMANDS)


def test_no_command_prints_usage_and_fails(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: andante COMMAND")


def test_unknown_command_lists_the_commands(capsys):
    assert main(["fly"]) == 2
    assert capsys.readouterr().err == f"andante: no command 'fly'; commands: {', '.join(COMMANDS)}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"usage: andante {command}" in capsys.readouterr().out


POSITIONALS = {"profile": ["check", "robot.yaml"], "diff": ["a.mcap", "b.mcap"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_option_is_named(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, *POSITIONALS.get(command, ["something"]), "--no-such-option", "1"])
    assert exit_.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify", "run"])
def test_missing_policy_file_is_one_line(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "absent.onnx")]) == 1
    assert capsys.readouterr().err == f"andante: {tmp_path}/absent.onnx: No such file or directory\n"


@pytest.mark.parametrize("command", ["inspect", "verify", "run"])
def test_foreign_file_is_one_line(command, tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("not a policy\n")
    assert main([command, str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"andante: {path}: truncated, damaged or not an ONNX model")
    assert captured.err.count("\n") == 1


def test_inspect_prints_the_contract_as_json(policy, capsys):
    assert main(["inspect", str(policy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(tiny_contract().to_json())


def test_inspect_tells_rate_units_limits_and_gains(policy, capsys):
    assert main(["inspect", str(policy)]) == 0
    text = capsys.readouterr().out
    facts, _, whole = text.partition("\n\n")
    assert "rate 50 Hz: a tick of 20 ms is 4 physics steps" in [
        " ".join(line.split()) for line in facts.split("\n")
    ]
    told, contract = yaml.safe_load(whole), json.loads(tiny_contract().to_json())
    for key in ("sources", "actions", "states", "provenance"):
        assert told[key] == contract[key]


def test_verify_reports_digest_and_golden_trace(policy, capsys):
    assert main(["verify", str(policy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["digest", "ok", "sha256"], ["golden", "trace", "ok"]]
    assert "64 decisions, 2 resets" in lines[2]


def test_verify_fails_where_the_golden_trace_is_not_reproduced(policy, capsys):
    trace = tiny_trace()
    other = Trace(trace.sources, trace.reset, trace.states, trace.actions * np.float32(1.001))
    policy.write_bytes(seal(tiny_model().SerializeToString(), tiny_contract(), other))
    assert main(["verify", str(policy)]) == 1
    assert "golden trace  FAILED" in capsys.readouterr().out


def result_json(returned: float, episodes: int, task: str = "tiny", random: float = 1.0) -> str:
    fields = {"task": task, "return": returned, "random_return": random, "episodes": episodes, "seed": 0}
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory; expected the folder of a finished run"),
        ("{", "truncated"),
        ('{"task": "tiny", "return": 1.0}', "missing required field `random_return`"),
        (result_json(2.0, episodes=0), "Expected `int` >= 1"),
        (result_json(1.0, episodes=2), "nothing to compare with"),
    ],
)
def test_verify_names_what_is_wrong_with_the_run(policy, tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    assert main(["verify", str(policy), "--run", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"andante: {tmp_path}/result.json: ")
    assert message in error


def test_verify_refuses_a_run_of_another_task(policy, tmp_path, capsys):
    (tmp_path / "result.json").write_text(result_json(2.0, episodes=2, task="balance"))
    assert main(["verify", str(policy), "--run", str(tmp_path)]) == 1
    assert "a run of task 'balance', policy for 'tiny'" in capsys.readouterr().err


def test_verify_takes_a_profile_and_says_that_faults_alone_failed_the_closed_loop(tmp_path, capsys):
    task, path = "pendulum-swingup-blind", write_small_policy(tmp_path / "pendulum.onnx")
    returned = float(closed_loop(path, task, 2, seed=0).returns.mean())
    (tmp_path / "result.json").write_text(result_json(returned, 2, task, -1e9))
    (tmp_path / "slow.yaml").write_text(
        (SHIPPED / "pendulum.yaml").read_text().replace("velocity: 60.0", "velocity: 2.0")
    )
    words = ["verify", str(path), "--run", str(tmp_path)]
    assert main(words) == 0
    assert "closed loop   ok" in capsys.readouterr().out
    assert main([*words, "--profile", str(tmp_path / "slow.yaml")]) == 1
    told = capsys.readouterr().out
    assert "closed loop   FAILED  1 of 2 episodes ended in a fault; return " in told
    assert "episode 1: limit" in told


def test_verify_refuses_a_profile_without_a_run_to_compare_with(policy, capsys):
    assert main(["verify", str(policy), "--profile", "pendulum"]) == 1
    assert "give the run's folder with --run" in capsys.readouterr().err


def test_export_of_what_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "absent"), "-o", str(tmp_path / "policy.onnx")]) == 1
    error = capsys.readouterr().err
    assert "absent" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

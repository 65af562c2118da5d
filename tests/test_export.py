"""Export: the file is the trained policy, or there is no file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from andante.cli import main
from andante.export import policy_file
from andante.export.policy_file import export_policy
from andante.runtime.artifact import read_artifact
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.policy import decide_all, load_policy
from andante.runtime.profile import load_profile
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import Choice, Randomization, Uniform
from andante.train.checkpoint import Checkpoint, load_run
from andante.train.policy import Policy


def make_policy(task: str, **options) -> Policy:
    torch.manual_seed(0)
    policy = Policy.for_env(get_spec(task), hidden_size=32, **options)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)  # untrained ones hardly move
    return policy


def change_a_weight_after_export(monkeypatch):
    """What a faulty exporter would do: the graph and the module do not have the same weights."""
    export = policy_file.to_onnx

    def export_then_change(policy):
        model = export(policy)
        with torch.no_grad():
            policy.decoder.means.bias[0] += 1e-3
        return model

    monkeypatch.setattr(policy_file, "to_onnx", export_then_change)


def test_trained_policy_is_equal_over_a_thousand_decisions_of_another_seed(trained_run, tmp_path):
    verification = policy_file.export_run(trained_run, tmp_path / "policy.onnx", seed=77)
    assert verification.decisions == 1000
    assert verification.resets >= 4
    assert verification.max_action_error <= 1e-5
    assert verification.max_state_error <= 1e-5
    assert read_artifact(tmp_path / "policy.onnx").contract.verification == verification
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]


def test_file_decides_as_the_checkpoint_does(trained_run, trained_policy):
    policy = load_run(trained_run).policy.freeze()
    observations = policy_file.observe(policy, 300, seed=5, restart_every=120)
    states, actions = policy_file.decide_in_torch(policy, observations)
    session = load_policy(trained_policy)
    file_states, file_actions = decide_all(session, observations.sources, observations.reset)
    np.testing.assert_allclose(file_actions, actions, atol=1e-5)
    np.testing.assert_allclose(file_states, states, atol=1e-5)
    assert np.ptp(actions) > 0.1


def test_contract_tells_what_the_task_declares(trained_policy):
    contract = read_artifact(trained_policy).contract
    spec = get_spec(contract.task)
    assert contract.robot_model == spec.robot_model
    assert (contract.control_period_ns, contract.decimation) == (spec.control_period_ns, spec.decimation)
    assert contract.sources == spec.sources
    assert contract.actions == spec.actions
    assert contract.max_gap_ticks == spec.max_gap_ticks
    assert contract.state_size == sum(state.size for state in contract.states)
    assert {
        "export.torch",
        "export.onnxruntime",
        "export.python",
        "export.andante",
    } <= contract.provenance.keys()


def test_golden_trace_has_64_decisions_with_a_reset_among_them(trained_policy):
    artifact = read_artifact(trained_policy)
    trace = artifact.trace
    assert len(trace.reset) == 64
    assert trace.reset[0]
    assert trace.reset[1:].any()
    seen = max(state.max_seen for state in artifact.contract.states)
    assert seen >= np.abs(trace.states).max() > 0.1


def test_graph_is_static_and_self_contained(trained_policy):
    model = onnx.load(trained_policy)
    contract = read_artifact(trained_policy).contract
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        tensor.name: [dim.dim_value for dim in tensor.type.tensor_type.shape.dim]
        for tensor in (*model.graph.input, *model.graph.output)
    }
    horizon, size = contract.chunk_size, contract.state_size
    sources = {source.name: [1, *source.shape] for source in contract.sources}
    actions = [1, horizon, len(contract.action_joints)]
    assert shapes == {**sources, "h_in": [1, size], "actions": actions, "h_out": [1, size]}
    assert model.ir_version <= 11
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert not {"GRU", "LSTM", "RNN"} & {node.op_type for node in model.graph.node}
    assert b"site-packages" not in trained_policy.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"task": "cartpole-swingup-blind", "memory": "gru", "chunk_size": 4, "execution_horizon": 2},
        {"task": "pendulum-swingup-blind", "memory": "mlp", "chunk_size": 1},
    ],
    ids=["gru", "mlp"],
)
def test_other_cells_horizons_and_tasks_export(options, tmp_path):
    policy = make_policy(**options)
    path = tmp_path / "policy.onnx"
    policy_file.export_policy(policy, {"note": "untrained"}, path)
    contract = load_policy(path).contract
    assert contract.chunk_size == options["chunk_size"]
    assert contract.execution_horizon.default == policy.execution_horizon
    assert contract.provenance["note"] == "untrained"
    assert contract.licences.policy == "NOASSERTION"


def test_policy_of_an_unfinished_run_says_so(trained_run, trained_policy, tmp_path, capsys):
    assert read_artifact(trained_policy).contract.provenance["train.finished"] == "true"
    shutil.copy(trained_run / "checkpoint.pt", tmp_path)
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "policy.onnx")]) == 0
    ticks = load_run(trained_run).result.ticks
    assert f"not finished, this is its best policy of {ticks} ticks" in capsys.readouterr().out
    provenance = read_artifact(tmp_path / "policy.onnx").contract.provenance
    assert (provenance["train.finished"], provenance["train.ticks"]) == ("false", str(ticks))


def test_run_without_a_policy_yet_is_refused(trained_run, tmp_path, capsys):
    checkpoint = Checkpoint.read(trained_run / "checkpoint.pt")
    checkpoint.best = None
    checkpoint.write(tmp_path / "checkpoint.pt")
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "policy.onnx")]) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path}: no policy yet" in error and error.count("\n") == 1
    assert not (tmp_path / "policy.onnx").exists()


def test_weight_changed_between_export_and_verification_leaves_no_file(
    trained_run, tmp_path, monkeypatch, capsys
):
    change_a_weight_after_export(monkeypatch)
    assert main(["export", str(trained_run), "-o", str(tmp_path / "policy.onnx")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"andante: {tmp_path}/policy.onnx: not written: over 1000 decisions")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_failed_export_keeps_the_file_that_was_there(tmp_path, monkeypatch):
    change_a_weight_after_export(monkeypatch)
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"before")
    with pytest.raises(AndanteError, match="not written"):
        policy_file.export_policy(make_policy("pendulum-swingup-blind"), {}, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_policy_that_is_not_finite_is_refused(tmp_path):
    policy = make_policy("pendulum-swingup-blind")
    with torch.no_grad():
        policy.decoder.means.bias[0] = torch.nan
    with pytest.raises(AndanteError, match="finite"):
        policy_file.export_policy(policy, {}, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_missing_output_folder_is_named_before_anything_is_done(trained_run, tmp_path):
    with pytest.raises(AndanteError, match=f"no folder {tmp_path}/absent"):
        policy_file.export_run(trained_run, tmp_path / "absent" / "policy.onnx")


@pytest.mark.parametrize("seed", [-1, 99999999999999999999])
def test_impossible_seed_is_named_before_anything_is_done(tmp_path, seed):
    with pytest.raises(AndanteError, match=rf"seed must be 0 to 2\^63 - 1, found {seed}"):
        policy_file.export_policy(make_policy("pendulum-swingup-blind"), {}, tmp_path / "policy.onnx", seed)


def test_folder_in_place_of_the_output_file_is_named(tmp_path):
    for output in (tmp_path, Path()):
        with pytest.raises(AndanteError, match="is a folder, expected the name of a file"):
            policy_file.export_policy(make_policy("pendulum-swingup-blind"), {}, output)


def test_verify_compares_the_closed_loop_with_the_run(trained_run, trained_policy, capsys):
    assert main(["verify", str(trained_policy), "--run", str(trained_run)]) == 0
    assert "closed loop   ok" in capsys.readouterr().out


def test_verify_fails_for_the_result_of_another_run(trained_run, trained_policy, tmp_path, capsys):
    shutil.copy(trained_run / "result.json", tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    result["return"] -= 0.05 * (result["return"] - result["random_return"])
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["verify", str(trained_policy), "--run", str(tmp_path)]) == 1
    assert "closed loop   FAILED" in capsys.readouterr().out


def test_a_policy_of_late_decisions_says_what_it_was_trained_for(tmp_path):
    torch.manual_seed(0)
    spec = get_spec("cartpole-swingup-blind")
    policy = Policy.for_env(spec, hidden_size=8, chunk_size=6, execution_horizon=3, committed_actions=2)
    late = Randomization(
        inference_delay=Uniform(1, 2), execution_horizon=Choice((2, 3)), dropped_decisions=0.1
    )
    path = tmp_path / "late.onnx"
    export_policy(policy, {}, path, randomization=late)
    artifact = read_artifact(path)
    contract, trace = artifact.contract, artifact.trace
    assert (contract.inference_delay.values, contract.inference_delay.default) == ((1, 2), 1)
    assert (contract.execution_horizon.values, contract.execution_horizon.default) == ((2, 3), 3)
    committed = trace.sources["committed_actions"]
    assert committed.shape[1:] == (2, 1) and np.abs(committed).max() > 0.0
    assert not committed[trace.reset].any()
    controller = Controller(load_policy(path), load_profile("cartpole"))
    assert controller.planner.execution.mode == "prefix"


@pytest.mark.parametrize("decoder", ["hold", "interpolate"])
def test_tied_actions_are_exported_as_whole_chunks(tmp_path, decoder):
    torch.manual_seed(0)
    policy = Policy.for_env(get_spec("cartpole-swingup-blind"), hidden_size=8, chunk_size=4, decoder=decoder)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)
    export_policy(policy, {}, tmp_path / "tied.onnx")
    trace = read_artifact(tmp_path / "tied.onnx").trace
    steps = np.diff(trace.actions[..., 0], axis=1)
    assert trace.actions.std() > 0.0
    if decoder == "hold":
        assert not steps.any()
    else:
        np.testing.assert_allclose(steps, steps[:, :1].repeat(3, 1), atol=1e-4)

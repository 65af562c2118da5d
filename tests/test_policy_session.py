"""The policy session: the graph with its memory, exactly one commit per accepted decision."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import onnx
import pytest
from tiny_policy import tiny_contract, tiny_model, tiny_policy, tiny_trace

from andante.export.seal import seal
from andante.runtime.artifact import Trace, read_artifact
from andante.runtime.contract import Source, StateTensor
from andante.runtime.errors import ArtifactError
from andante.runtime.policy import PolicySession, load_policy, replay

INITIAL = np.full(2, 0.5, np.float32)


@pytest.fixture
def session(tmp_path) -> PolicySession:
    return load_policy(_write(tmp_path, tiny_policy()))


def test_loading_leaves_the_initial_state_and_empty_inputs(session):
    np.testing.assert_array_equal(session.state(), INITIAL)
    np.testing.assert_array_equal(session.inputs["q"], np.zeros((1, 2)))


def test_free_running_decisions_equal_numpy(session):
    deviation = replay(session, tiny_trace())
    assert deviation.action < 2e-6
    assert deviation.state < 1e-6


def test_infer_leaves_the_state_bit_identical(session):
    session.inputs["q"][:] = [[0.3, -1.1]]
    first = session.infer().copy()
    np.testing.assert_array_equal(session.state(), INITIAL)
    np.testing.assert_array_equal(session.infer(), first)
    session.commit()
    np.testing.assert_allclose(session.state(), np.tanh(0.5 - 0.8), rtol=1e-5)


def test_decisions_without_commit_do_not_change_what_follows(session, tmp_path):
    other = load_policy(tmp_path / "policy.onnx")
    draw = np.random.default_rng(1)
    for i in range(50):
        q = draw.normal(size=(1, 2))
        if i % 3 == 0:
            session.inputs["q"][:] = draw.normal(size=(1, 2))
            session.infer()
        for each in (session, other):
            each.inputs["q"][:] = q
            each.infer()
            each.commit()
        np.testing.assert_array_equal(session.state(), other.state())


def test_commit_needs_a_decision(session):
    with pytest.raises(RuntimeError, match="without a decision"):
        session.commit()
    session.infer()
    session.commit()
    with pytest.raises(RuntimeError, match="without a decision"):
        session.commit()


def test_reset_drops_a_decision_that_waits(session):
    session.inputs["q"].fill(1.0)
    session.infer()
    session.reset()
    with pytest.raises(RuntimeError, match="without a decision"):
        session.commit()
    np.testing.assert_array_equal(session.state(), INITIAL)


@pytest.mark.parametrize("commits", [0, 1, 2, 3])
def test_reset_restores_the_initial_state_from_either_buffer(session, commits):
    session.inputs["q"].fill(1.0)
    for _ in range(commits):
        session.infer()
        session.commit()
    session.reset()
    np.testing.assert_array_equal(session.state(), INITIAL)


def test_state_is_a_copy(session):
    session.state()[:] = 9.0
    np.testing.assert_array_equal(session.state(), INITIAL)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_is_told_and_does_not_stay(session, bad):
    session.inputs["q"][0, 1] = bad
    session.infer()
    assert not session.finite
    session.inputs["q"][0, 1] = 0.0
    assert np.isfinite(session.infer()).all()
    assert session.finite


def test_non_finite_state_alone_is_told(tmp_path):
    model = tiny_model()
    model.graph.node[3].op_type = "Sqrt"  # of a negative state: NaN
    drive = model.graph.node[4]
    drive.input[0] = "q"  # actions do not depend on the state any more
    session = PolicySession(model.SerializeToString(), tiny_contract(), "", "policy.onnx")
    session.inputs["q"].fill(-1.0)
    assert np.isfinite(session.infer()).all()
    assert not session.finite


def test_nothing_is_allocated_per_decision(tmp_path):
    session = load_policy(_write(tmp_path, tiny_policy(state_size=5000)))  # a copy of it would be 20 kB

    def decide(times: int) -> None:
        for _ in range(times):
            session.infer()
            session.commit()

    gc.collect()
    tracemalloc.start()
    try:
        decide(1000)  # the interpreter's own caches fill
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        decide(1000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1000
    assert peak - before < 2000


def test_chunk_is_always_the_same_buffer(session):
    assert session.infer() is session.infer()


@pytest.mark.parametrize("state_size", [0, 1])
def test_policies_with_little_or_no_state_run(tmp_path, state_size):
    path = _write(tmp_path, tiny_policy(state_size))
    session = load_policy(path)
    assert session.state().shape == (state_size,)
    assert replay(session, read_artifact(path).trace).within(1e-5)


def test_another_golden_trace_is_refused(tmp_path):
    trace = tiny_trace()
    changed = Trace(trace.sources, trace.reset, trace.states, trace.actions + np.float32(1e-3))
    content = seal(tiny_model().SerializeToString(), tiny_contract(), changed)
    with pytest.raises(
        ArtifactError, match=r"policy\.onnx: golden trace is not reproduced to 1e-04: .* differ by 1"
    ):
        load_policy(_write(tmp_path, content))


def test_golden_trace_without_its_reset_is_refused(tmp_path):
    trace = tiny_trace()
    content = seal(
        tiny_model().SerializeToString(),
        tiny_contract(),
        Trace(trace.sources, np.zeros_like(trace.reset), trace.states, trace.actions),
    )
    with pytest.raises(ArtifactError, match="golden trace is not reproduced"):
        load_policy(_write(tmp_path, content))


def test_other_weights_with_a_right_digest_are_refused(tmp_path):
    content = seal(tiny_model(gain=1.001).SerializeToString(), tiny_contract(), tiny_trace())
    with pytest.raises(ArtifactError, match="golden trace is not reproduced"):
        load_policy(_write(tmp_path, content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"chunk_size": 4},
            r"'actions' is tensor\(float\) \[1, 3, 2\], contract says tensor\(float\) \[1, 4, 2\]",
        ),
        (
            {"states": (StateTensor(name="m", size=3, initial=(0.0,) * 3, max_seen=0.0),)},
            r"'h_in' is tensor\(float\) \[1, 2\], contract says tensor\(float\) \[1, 3\]",
        ),
        (
            {"sources": (Source(name="p", kind="joint_position", joints=("a",), unit="rad", max_age_ns=1),)},
            r"graph has tensors \['h_in', 'q'\], contract says \['h_in', 'p'\]",
        ),
    ],
)
def test_graph_that_does_not_fit_the_contract_is_refused(changes, message):
    with pytest.raises(ArtifactError, match=rf"policy\.onnx: .*{message}"):
        PolicySession(tiny_model().SerializeToString(), tiny_contract(**changes), "", "policy.onnx")


def test_graph_that_onnxruntime_does_not_know_is_refused():
    model = tiny_model()
    model.graph.node[0].op_type = "Levitate"
    with pytest.raises(
        ArtifactError, match=r"policy\.onnx: onnxruntime .* does not load the graph: .*Levitate"
    ):
        PolicySession(model.SerializeToString(), tiny_contract(), "", "policy.onnx")


def test_graph_that_fails_while_it_runs_is_refused_in_one_line(tmp_path, capfd):
    model = tiny_model()
    graph = model.graph
    graph.node[3].output[0] = "inner"
    graph.node.insert(4, onnx.helper.make_node("Cast", ["inner"], ["place"], to=onnx.TensorProto.INT64))
    graph.node.insert(5, onnx.helper.make_node("Sub", ["place", "far"], ["nowhere"]))
    graph.node.insert(6, onnx.helper.make_node("GatherElements", ["inner", "nowhere"], ["h_out"], axis=1))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([9], np.int64), "far"))
    path = _write(tmp_path, seal(model.SerializeToString(), tiny_contract(), tiny_trace()))
    with pytest.raises(ArtifactError, match=r"policy\.onnx: graph fails on its trace: .*Out of") as error:
        load_policy(path)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def _write(folder, content: bytes):
    path = folder / "policy.onnx"
    path.write_bytes(content)
    return path

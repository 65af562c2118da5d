"""A policy small enough to write down: y = tanh(x + h), as a real ONNX file made with the onnx package."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from andante.export.seal import seal
from andante.runtime.artifact import Trace
from andante.runtime.contract import (
    SCHEMA,
    ActionTerm,
    Contract,
    Licences,
    Source,
    StateTensor,
    Trained,
    Verification,
)

JOINTS = ("shoulder", "elbow")


def tiny_contract(state_size: int = 2, **changes) -> Contract:
    fields = {
        "schema": SCHEMA,
        "task": "tiny",
        "robot_model": "tiny",
        "control_period_ns": 20_000_000,
        "decimation": 4,
        "chunk_size": 3,
        "execution_horizon": Trained(values=(3,), default=3),
        "inference_delay": Trained(values=(0,), default=0),
        "max_gap_ticks": 2,
        "sources": (
            Source(name="q", kind="joint_position", joints=JOINTS, unit="rad", max_age_ns=50_000_000),
        ),
        "actions": (
            ActionTerm(
                name="torque",
                kind="effort",
                joints=JOINTS,
                unit="N m",
                low=(-1.0, -1.0),
                high=(1.0, 1.0),
                kp=(0.0, 0.0),
                kd=(0.0, 0.0),
                closed_by="drive",
            ),
        ),
        "states": tuple(
            StateTensor(name=f"h{i}", size=1, initial=(0.5,), max_seen=1.0) for i in range(state_size)
        ),
        "licences": Licences(policy="Apache-2.0", robot_model="Apache-2.0", data="Apache-2.0"),
        "provenance": {},
        "verification": Verification(decisions=0, resets=0, max_action_error=0.0, max_state_error=0.0),
    }
    return Contract(**(fields | changes))


def tiny_model(state_size: int = 2, gain: float = 1.0) -> onnx.ModelProto:
    """`h_out = tanh(gain * sum(q) + h)`, every action `sum(h_out) + q`; with no state, `tanh(gain * q)`."""
    nodes = [
        helper.make_node("ReduceSum", ["q", "axis"], ["total"], keepdims=1),
        helper.make_node("Mul", ["total", "gain"], ["scaled"]),
        helper.make_node("Add", ["scaled", "h_in"], ["moved"]),
        helper.make_node("Tanh", ["moved"], ["h_out"]),
        helper.make_node("ReduceSum", ["h_out", "axis"], ["drive"], keepdims=1),
        helper.make_node("Add", ["drive", "q"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "axis"], ["rows"]),
        helper.make_node("Expand", ["rows", "shape"], ["actions"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [_value("q", [1, 2]), _value("h_in", [1, state_size])],
        [_value("actions", [1, 3, 2]), _value("h_out", [1, state_size])],
        [
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
            numpy_helper.from_array(np.array([gain], np.float32), "gain"),
            numpy_helper.from_array(np.array([1, 3, 2], np.int64), "shape"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def tiny_trace(state_size: int = 2, decisions: int = 64) -> Trace:
    """The trace that numpy computes for `tiny_model`, with a reset before decision 20."""
    q = np.random.default_rng(0).normal(size=(decisions, 2)).astype(np.float32)
    reset = np.zeros(decisions, bool)
    reset[:40:20] = True
    states = np.zeros((decisions, state_size), np.float32)
    h = np.full(state_size, 0.5, np.float32)
    for i in range(decisions):
        if reset[i]:
            h = np.full(state_size, 0.5, np.float32)
        h = np.tanh(q[i].sum() + h)
        states[i] = h
    actions = np.repeat((states.sum(1, keepdims=True) + q)[:, None], 3, axis=1)
    return Trace({"q": q}, reset, states, actions)


def tiny_policy(state_size: int = 2) -> bytes:
    model = tiny_model(state_size).SerializeToString()
    return seal(model, tiny_contract(state_size), tiny_trace(state_size))


def _value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

"""A small recurrent policy with random weights, as a real policy file for the robots of `sim/spec`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from andante.export.seal import seal
from andante.runtime.artifact import Trace
from andante.runtime.contract import SCHEMA, Contract, Licences, StateTensor, Trained, Verification
from andante.runtime.policy import PolicySession, decide_all
from andante.sim.spec import TASKS

STATE_SIZE = 8


def small_contract(robot: str = "pendulum", chunk_size: int = 5, **changes) -> Contract:
    """The contract of that robot's task, for every execution horizon up to `chunk_size` (the default)."""
    spec = next(spec for spec in TASKS.values() if spec.robot_model == robot)
    fields = {
        "schema": SCHEMA,
        "task": spec.name,
        "robot_model": robot,
        "control_period_ns": spec.control_period_ns,
        "decimation": spec.decimation,
        "chunk_size": chunk_size,
        "execution_horizon": Trained(values=tuple(range(1, chunk_size + 1)), default=chunk_size),
        "inference_delay": Trained(values=(0,), default=0),
        "max_gap_ticks": spec.max_gap_ticks,
        "sources": spec.sources,
        "actions": spec.actions,
        "states": (StateTensor(name="memory", size=STATE_SIZE, initial=(0.1,) * STATE_SIZE, max_seen=1.0),),
        "licences": Licences(policy="Apache-2.0", robot_model="Apache-2.0", data="Apache-2.0"),
        "provenance": {"made by": "tests/small_policy.py"},
        "verification": Verification(decisions=0, resets=0, max_action_error=0.0, max_state_error=0.0),
    }
    return Contract(**(fields | changes))


def write_small_policy(
    path: str | Path, robot: str = "pendulum", seed: int = 0, chunk_size: int = 5, **changes
) -> Path:
    """Write a policy file: `h' = tanh(x W + h U)`, action = middle of its range + half of it * `tanh(h' V)`.

    A first source value beyond 88 makes the chunk NaN, so that the network can fail on finite input.
    `changes` replace fields of the contract.
    """
    contract = small_contract(robot, chunk_size, **changes)
    model = _graph(contract, np.random.default_rng(seed)).SerializeToString()
    random = np.random.default_rng(seed + 1)
    sources = {
        source.name: random.normal(size=(64, *source.shape)).astype(np.float32) for source in contract.sources
    }
    reset = np.zeros(64, np.bool_)
    reset[[0, 40]] = True
    states, actions = decide_all(PolicySession(model, contract, "", path), sources, reset)
    path = Path(path)
    path.write_bytes(seal(model, contract, Trace(sources, reset, states, actions)))
    return path


def _graph(contract: Contract, random: np.random.Generator) -> onnx.ModelProto:
    names = [source.name for source in contract.sources]
    columns = sum(math.prod(source.shape) for source in contract.sources)
    size, width = contract.state_size, len(contract.action_joints)
    low = np.array([value for term in contract.actions for value in term.low], np.float32)
    high = np.array([value for term in contract.actions for value in term.high], np.float32)
    constants = {
        "W": random.normal(size=(columns, size)),
        "U": 0.8 * random.normal(size=(size, size)) / np.sqrt(size),
        "V": random.normal(size=(size, contract.chunk_size * width)),
        "middle": (low + high) / 2,
        "half": (high - low) / 2,
        "first": np.eye(columns)[:, :1],
        "zero": np.zeros(1),
    }
    shape = np.array([1, contract.chunk_size, width], np.int64)
    nodes = [
        *(helper.make_node("Flatten", [name], [f"{name} flat"], axis=1) for name in names),
        helper.make_node("Concat", [f"{name} flat" for name in names], ["x"], axis=1),
        helper.make_node("MatMul", ["x", "W"], ["xW"]),
        helper.make_node("MatMul", ["h_in", "U"], ["hU"]),
        helper.make_node("Add", ["xW", "hU"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["h_out"]),
        helper.make_node("MatMul", ["h_out", "V"], ["hV"]),
        helper.make_node("Tanh", ["hV"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["u"]),
        helper.make_node("Mul", ["u", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "middle"], ["bounded"]),
        helper.make_node("MatMul", ["x", "first"], ["x0"]),
        helper.make_node("Exp", ["x0"], ["huge"]),
        helper.make_node("Mul", ["huge", "zero"], ["zero_or_nan"]),
        helper.make_node("Add", ["bounded", "zero_or_nan"], ["actions"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [_value(source.name, [1, *source.shape]) for source in contract.sources]
        + [_value("h_in", [1, size])],
        [_value("actions", shape.tolist()), _value("h_out", [1, size])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
        + [numpy_helper.from_array(shape, "shape")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

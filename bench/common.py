"""What several benchmarks need: policies of random weights, and robots' profiles for them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from small_policy import small_contract

from andante.runtime.contract import Contract, StateTensor, Trained
from andante.runtime.policy import PolicySession

HIDDEN = 128


def gru_contract(
    robot: str = "quadruped", horizon: int = 1, delays: tuple[int, ...] = (0,), **changes
) -> Contract:
    """Of a GRU of `HIDDEN` units; `changes` replace fields of the robot's task's contract."""
    state = StateTensor(name="memory", size=HIDDEN, initial=(0.0,) * HIDDEN, max_seen=1.0)
    return small_contract(
        robot,
        execution_horizon=Trained(values=(horizon,), default=horizon),
        inference_delay=Trained(values=delays, default=delays[0]),
        states=(state,),
        **changes,
    )


def gru_policy(contract: Contract) -> PolicySession:
    """A session of it, without a file."""
    return PolicySession(gru_graph(contract).SerializeToString(), contract, "", "benchmark")


def gru_graph(contract: Contract) -> onnx.ModelProto:
    """Observation -> decomposed GRU -> linear chunk decoder about the middle; weights are random."""
    random = np.random.default_rng(0)
    names = [source.name for source in contract.sources]
    columns = sum(source.shape[-1] for source in contract.sources)
    width, chunk = len(contract.action_joints), contract.chunk_size
    weights = {
        "W": random.normal(size=(columns, 3 * HIDDEN)) * 0.1,
        "b": np.zeros(3 * HIDDEN),
        "U": random.normal(size=(HIDDEN, 3 * HIDDEN)) * 0.08,
        "c": np.zeros(3 * HIDDEN),
        "V": random.normal(size=(HIDDEN, chunk * width)) * 0.05,
        "v": np.tile(contract.action_center, chunk),
    }
    node = helper.make_node
    nodes = [
        node("Concat", names, ["x"], axis=1),
        node("Gemm", ["x", "W", "b"], ["xg"]),
        node("Gemm", ["h_in", "U", "c"], ["hg"]),
        node("Split", ["xg", "split"], ["xr", "xz", "xn"], axis=1),
        node("Split", ["hg", "split"], ["hr", "hz", "hn"], axis=1),
        node("Add", ["xr", "hr"], ["r_sum"]),
        node("Sigmoid", ["r_sum"], ["r"]),
        node("Add", ["xz", "hz"], ["z_sum"]),
        node("Sigmoid", ["z_sum"], ["z"]),
        node("Mul", ["r", "hn"], ["rh"]),
        node("Add", ["xn", "rh"], ["n_sum"]),
        node("Tanh", ["n_sum"], ["n"]),
        node("Sub", ["h_in", "n"], ["away"]),
        node("Mul", ["z", "away"], ["kept"]),
        node("Add", ["n", "kept"], ["h_out"]),
        node("Gemm", ["h_out", "V", "v"], ["flat"]),
        node("Reshape", ["flat", "shape"], ["actions"]),
    ]

    def value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    constants.append(numpy_helper.from_array(np.array([HIDDEN] * 3, np.int64), "split"))
    constants.append(numpy_helper.from_array(np.array([1, chunk, width], np.int64), "shape"))
    graph = helper.make_graph(
        nodes,
        "gru",
        [value(s.name, [1, *s.shape]) for s in contract.sources] + [value("h_in", [1, HIDDEN])],
        [value("actions", [1, chunk, width]), value("h_out", [1, HIDDEN])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

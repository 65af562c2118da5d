"""A policy module as an ONNX graph: one decision, batch 1, static shapes, weights inside."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch

from andante.train.policy import Policy

OPSET = 18
"""What torch's exporter produces without conversion."""
IR_VERSION = 10
"""onnxruntime 1.23, the last for Python 3.10, reads up to 11."""


def to_onnx(policy: Policy) -> bytes:
    """Export `Policy.forward`: one input `[1, *shape]` per source and `h_in`; `actions` and `h_out`."""
    sources = policy.spec.sources
    example = (*(torch.zeros(1, *source.shape) for source in sources), policy.initial_state(1))
    with _quiet():
        program = torch.onnx.export(
            policy,
            example,
            input_names=[*(source.name for source in sources), "h_in"],
            output_names=["actions", "h_out"],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return bytes(_clean(program.model_proto).SerializeToString())


def _clean(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop what the exporter notes about the machine it ran on: stack traces and paths at every node."""
    model.ir_version = IR_VERSION
    graph = model.graph
    del model.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on its own internals and on packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

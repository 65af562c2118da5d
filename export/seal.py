"""Writing what `andante.runtime.artifact` reads."""

from __future__ import annotations

import base64
import io

import numpy as np

from andante.runtime.artifact import (
    CONTRACT,
    DIGEST,
    METADATA,
    SOURCE_PREFIX,
    TRACE,
    Trace,
    check_trace,
    digest_of,
    split_model,
)
from andante.runtime.contract import Contract
from andante.runtime.recorder.protobuf import encode


def seal(model: bytes, contract: Contract, trace: Trace) -> bytes:
    """Put contract, trace and digest into a serialised ONNX model, replacing those it has.

    Raises:
        ArtifactError: not a model, weights outside the model, or a trace whose shapes are not the contract's.
    """
    where = "model to seal"
    rest, entries, _ = split_model(model, where)
    check_trace(trace, contract, where)
    entries |= {CONTRACT: _entry(CONTRACT, contract.to_json()), TRACE: _entry(TRACE, encode_trace(trace))}
    entries[DIGEST] = _entry(DIGEST, digest_of(rest, entries))
    return b"".join([*rest, *(encode(METADATA, entry) for entry in entries.values())])


def encode_trace(trace: Trace) -> str:
    """A trace as text: numpy's compressed archive, in base64."""
    own = {"reset": trace.reset, "states": trace.states, "actions": trace.actions}
    sources = {SOURCE_PREFIX + name: values for name, values in trace.sources.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **own, **sources)
    return base64.b64encode(buffer.getvalue()).decode()


def _entry(key: str, value: str) -> memoryview:
    return memoryview(encode(1, key.encode()) + encode(2, value.encode()))

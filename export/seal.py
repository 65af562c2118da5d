"""Writing what `andante.runtime.artifact` reads."""

from __future__ import annotations

import base64
import io

import numpy as np

from andante.runtime import wire
from andante.runtime.artifact import (
    CONTRACT,
    DIGEST,
    METADATA,
    SOURCE_PREFIX,
    TRACE,
    Trace,
    check_trace,
    digest_of,
    encode_entry,
    split_model,
)
from andante.runtime.contract import Contract


def seal(model: bytes, contract: Contract, trace: Trace) -> bytes:
    """Put contract, trace and digest into a serialised ONNX model, replacing those it has.

    Raises:
        ArtifactError: not a model, weights outside the model, or a trace whose shapes are not the contract's.
    """
    where = "model to seal"
    rest, metadata = split_model(model, where)
    check_trace(trace, contract, where)
    metadata |= {CONTRACT: contract.to_json(), TRACE: encode_trace(trace)}
    metadata[DIGEST] = digest_of(rest, metadata)
    return b"".join([*rest, *(wire.encode(METADATA, encode_entry(*entry)) for entry in metadata.items())])


def encode_trace(trace: Trace) -> str:
    """A trace as text: numpy's compressed archive, in base64."""
    own = {"reset": trace.reset, "states": trace.states, "actions": trace.actions}
    sources = {SOURCE_PREFIX + name: values for name, values in trace.sources.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **own, **sources)
    return base64.b64encode(buffer.getvalue()).decode()

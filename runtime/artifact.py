"""One policy file: an ONNX model whose metadata carries the contract, the golden trace and a digest.

The digest is sha256 over every top-level field of the model and every metadata entry except itself.
It detects damage, not tampering: whoever can write the file can also seal it anew.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import wire
from .contract import Contract
from .errors import ArtifactError

MAX_BYTES = 256 * 1024**2
"""Larger files are refused unread."""

GRAPH, METADATA = 7, 14
"""Fields of a model."""
CONTRACT, TRACE, DIGEST = "andante.contract", "andante.trace", "andante.digest"
"""Keys of the metadata."""
SOURCE_PREFIX = "source/"
"""Of the trace's arrays that are sources."""


@dataclass(frozen=True)
class Trace:
    """The golden trace: N consecutive decisions, free-running from the initial state."""

    sources: dict[str, NDArray[np.float32]]
    """Per source `[N, *shape]`."""
    reset: NDArray[np.bool_]
    """`[N]`; the state is put to its initial values before a decision that is marked."""
    states: NDArray[np.float32]
    """`[N, S]`: `h_out` of every decision."""
    actions: NDArray[np.float32]
    """`[N, H, A]`."""

    def __str__(self) -> str:
        return f"{len(self.reset)} decisions, {int(self.reset.sum())} resets"


@dataclass(frozen=True)
class Artifact:
    """A policy file whose digest was right when it was read."""

    path: str
    """Where it was read from."""
    model: bytes
    """The whole file; onnxruntime ignores the metadata."""
    contract: Contract
    """What the policy reads, emits and assumes."""
    trace: Trace
    """What it must reproduce."""
    digest: str
    """sha256 of all that was sealed, in hexadecimal."""


def read_artifact(path: str | Path) -> Artifact:
    """Read a policy file and check its digest, contract and trace.

    Raises:
        ArtifactError: missing, truncated, oversized, not ONNX, not from andante, damaged, or keeping
            weights in another file; the text starts with the path.
    """
    model = _read_bytes(Path(path))
    rest, entries, metadata = split_model(model, str(path))
    missing = [key for key in (CONTRACT, TRACE, DIGEST) if key not in metadata]
    if missing:
        raise ArtifactError(f"{path}: no {', '.join(missing)} in it: not exported by andante, or damaged")
    digest = digest_of(rest, entries)
    if digest != metadata[DIGEST]:
        raise ArtifactError(f"{path}: damaged: sealed as {metadata[DIGEST][:16]}..., is {digest[:16]}...")
    contract = Contract.from_json(metadata[CONTRACT], f"{path}: contract")
    trace = _decode_trace(metadata[TRACE], str(path))
    check_trace(trace, contract, str(path))
    return Artifact(str(path), model, contract, trace, digest)


def _read_bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if not path.is_file():  # a device or a pipe may have no end
            raise ArtifactError(f"{path}: not a regular file")
        if size > MAX_BYTES:
            raise ArtifactError(f"{path}: {size} bytes, expected at most {MAX_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}") from None


def split_model(model: bytes, where: str) -> tuple[list[memoryview], dict[str, memoryview], dict[str, str]]:
    """The raw top-level fields without the metadata; its entries, raw; and their values.

    Raises:
        ArtifactError: not a model, or weights outside it.
    """
    rest: list[memoryview] = []
    entries: dict[str, memoryview] = {}
    metadata: dict[str, str] = {}
    has_graph = False
    view = memoryview(model)
    try:
        for field in wire.scan(view):
            if field.number == METADATA:
                key, value = (str(part.payload, "utf-8") for part in wire.scan(field.payload))
                if key in metadata:
                    raise ValueError(f"metadata {key!r} twice")
                entries[key], metadata[key] = field.payload, value
            else:
                rest.append(field.raw)
                has_graph |= field.number == GRAPH
        if not has_graph:
            raise ValueError("no graph in it")
        external = wire.has_external_data(view)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: truncated, damaged or not an ONNX model: {error}") from None
    if external:
        raise ArtifactError(f"{where}: keeps weights in another file (external data), expected one file")
    return rest, entries, metadata


def digest_of(rest: Iterable[memoryview], entries: Mapping[str, memoryview]) -> str:
    """What a file is sealed with: of its raw fields and entries, but for the digest's own."""
    sha = hashlib.sha256()
    for raw in (*rest, *(entries[key] for key in sorted(entries.keys() - {DIGEST}))):
        sha.update(raw)
    return sha.hexdigest()


def _decode_trace(text: str, where: str) -> Trace:
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(text, validate=True))) as file:
            if sum(member.file_size for member in file.infolist()) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
            arrays = {name.removesuffix(".npy"): _array(file.read(name)) for name in file.namelist()}
        sources = {n.removeprefix(SOURCE_PREFIX): arrays[n] for n in arrays if n.startswith(SOURCE_PREFIX)}
        return Trace(sources, arrays["reset"], arrays["states"], arrays["actions"])
    except Exception as error:  # what zipfile and numpy raise for strange bytes has no common base
        raise ArtifactError(f"{where}: golden trace is unreadable: {' '.join(str(error).split())}") from None


def _array(npy: bytes) -> NDArray[Any]:
    """The array of a file in numpy's format 1.0; nothing is allocated for a shape that it does not fill."""
    file = io.BytesIO(npy)
    np.lib.format.read_magic(file)
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran_order else "C")


def check_trace(trace: Trace, contract: Contract, where: str) -> None:
    """Refuse a trace that is not the contract's.

    Raises:
        ArtifactError: other sources, shapes or types, no decisions, or a value that is not finite.
    """
    found, expected = sorted(trace.sources), sorted(source.name for source in contract.sources)
    if found != expected:
        raise ArtifactError(f"{where}: golden trace has sources {found}, contract says {expected}")
    decisions = trace.reset.size
    if not decisions:
        raise ArtifactError(f"{where}: golden trace has no decisions")
    arrays: list[tuple[str, NDArray[np.generic], tuple[int, ...], type[np.generic]]] = [
        ("reset", trace.reset, (), np.bool_),
        *((source.name, trace.sources[source.name], source.shape, np.float32) for source in contract.sources),
        ("states", trace.states, (contract.state_size,), np.float32),
        ("actions", trace.actions, (contract.chunk_size, len(contract.action_joints)), np.float32),
    ]
    for name, array, shape, dtype in arrays:
        if array.dtype != dtype or array.shape != (decisions, *shape):
            raise ArtifactError(
                f"{where}: golden trace: {name!r} is {array.dtype} {list(array.shape)}, "
                f"contract says {np.dtype(dtype)} {[decisions, *shape]}"
            )
        if not np.isfinite(array).all():
            raise ArtifactError(f"{where}: golden trace: {name!r} has a value that is not finite")

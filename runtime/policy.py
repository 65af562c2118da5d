"""A policy file as a function with memory: onnxruntime, one thread, nothing allocated per decision."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .artifact import Artifact, Trace, read_artifact
from .contract import Contract
from .errors import ArtifactError

Floats = NDArray[np.float32]
"""The graph's numbers."""
Tensors = Mapping[str, Floats]
"""Arrays by name."""

GOLDEN_TOLERANCE = 1e-4
"""Largest deviation from the golden trace. The export demands 1e-5 on its own machine; other processors sum
in another order (float32 kernels were seen to differ by 5e-7 per decision), and the memory feeds that back.
"""

ALIGNMENT = 16
"""Of a tensor's begin, in numbers of four bytes."""


class PolicySession:
    """The graph with its memory `h`.

    Two bindings are used in turn: one reads `h` from the first block of memory and writes chunk and next
    state to the second, the other the reverse. So a decision that is not committed leaves `h` untouched, bit
    by bit.

    One thread at a time may use a session; from `infer`'s call to its return nobody else may even touch
    `inputs`. A second thread that calls a method meanwhile gets a RuntimeError.
    """

    contract: Contract
    """What the graph fits."""
    digest: str
    """Identity of the policy file."""
    inputs: dict[str, Floats]
    """Per source `[1, *shape]`: filled in place by the caller before `infer`."""
    flat_inputs: Floats
    """The memory of all `inputs`, padding between them."""
    input_places: dict[str, slice]
    """Where each source is in `flat_inputs`."""
    finite: bool
    """Whether all actions and the next state of the last `infer` are finite."""

    def __init__(self, model: bytes, contract: Contract, digest: str, where: str | Path) -> None:
        """Load the graph; `h` is at its initial values.

        Args:
            model: serialised ONNX model.
            contract: what the model must fit.
            digest: identity of the policy file.
            where: file to name in errors.

        Raises:
            ArtifactError: onnxruntime does not load the graph, or its tensors are not those of the contract.
        """
        self.contract = contract
        self.digest = digest
        self.finite = True
        self._session = _create_session(model, where)
        shapes = {source.name: (1, *source.shape) for source in contract.sources}
        self.flat_inputs, self.inputs, self.input_places = _lay_out(shapes)
        chunk, state = (1, contract.chunk_size, len(contract.action_joints)), (1, contract.state_size)
        outputs = {"actions": chunk, "h_out": state}
        blocks = [_lay_out(outputs) for _ in range(2)]
        self._blocks = [block for block, _, _ in blocks]
        self._is_finite = np.ones(len(self._blocks[0]), np.bool_)
        self._states = [tensors["h_out"] for _, tensors, _ in blocks]
        self._chunks: list[Floats] = [tensors["actions"][0] for _, tensors, _ in blocks]
        inputs = [{**self.inputs, "h_in": state} for state in self._states]
        _check_tensors(where, self._session.get_inputs(), inputs[0])
        _check_tensors(where, self._session.get_outputs(), blocks[0][1])
        self._initial = np.array([v for state in contract.states for v in state.initial], np.float32)
        self._bindings = [self._bind(inputs[i], blocks[1 - i][1]) for i in range(2)]
        self._lock = threading.Lock()
        self._current = 0
        self._pending = False
        self.reset()

    def infer(self) -> Floats:
        """Decide from `inputs` and `h`, which stays as it is.

        Returns:
            Chunk `[H, A]` in SI units: a view, valid until the next call.

        Raises:
            RuntimeError: another thread is using the session.
        """
        if not self._lock.acquire(False):
            raise RuntimeError("the policy is in use by another thread")
        try:
            self._session.run_with_iobinding(self._bindings[self._current])
            np.isfinite(self._blocks[1 - self._current], out=self._is_finite)
            self.finite = np.count_nonzero(self._is_finite) == self._is_finite.size
            self._pending = True
            return self._chunks[1 - self._current]
        finally:
            self._lock.release()

    def commit(self) -> None:
        """Make the next state of the last `infer` the memory.

        Raises:
            RuntimeError: no decision since the last `commit` or `reset`, or another thread is deciding.
        """
        self._expect_idle()
        if not self._pending:
            raise RuntimeError("commit() without a decision since the last commit() or reset()")
        self._current = 1 - self._current
        self._pending = False

    def reset(self) -> None:
        """Put `h` to its initial values; a decision that waits for `commit` is dropped.

        Raises:
            RuntimeError: another thread is deciding.
        """
        self._expect_idle()
        self._states[self._current][0] = self._initial
        self._pending = False

    def state(self) -> Floats:
        """A copy of `h`, `[S]`."""
        return self._states[self._current].reshape(-1).copy()

    def state_norm(self) -> float:
        """Euclidean norm of `h`."""
        h = self._states[self._current][0]
        return math.sqrt(np.dot(h, h))

    def _expect_idle(self) -> None:
        if self._lock.locked():
            raise RuntimeError("the policy is in use by another thread")

    def _bind(self, inputs: Tensors, outputs: Tensors) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        return binding


@dataclass(frozen=True)
class Deviation:
    """How far a replay is from a record."""

    action: float
    """Largest absolute difference, SI units."""
    action_scale: float
    """Largest absolute action of the record."""
    state: float
    """Largest absolute difference, relative to the largest state of the record."""

    def within(self, tolerance: float) -> bool:
        """Whether actions differ by at most `tolerance * max(1, action_scale)`, and states by `tolerance`.

        Rounding grows with the values: a float32 policy with forces of 12 N was seen to be 1.2e-5 N from its
        float64 self after 1000 decisions.
        """
        # NaN is not within: no comparison with it is true.
        return self.action <= tolerance * max(1.0, self.action_scale) and self.state <= tolerance

    def __str__(self) -> str:
        states = f"states by {self.state:.1e} of the largest"
        return f"actions of up to {self.action_scale:.3g} differ by {self.action:.1e}, {states}"


def load_policy(path: str | Path) -> PolicySession:
    """Read a policy file, replay its golden trace, and leave the memory at its initial values.

    Raises:
        ArtifactError: not a whole policy file, or this machine does not reproduce its golden trace.
    """
    _, session, deviation = check_golden_trace(path)
    if not deviation.within(GOLDEN_TOLERANCE):
        raise ArtifactError(f"{path}: golden trace is not reproduced to {GOLDEN_TOLERANCE:.0e}: {deviation}")
    return session


def check_golden_trace(path: str | Path) -> tuple[Artifact, PolicySession, Deviation]:
    """Read a policy file, its digest included, and replay its golden trace; the memory is reset after it.

    Raises:
        ArtifactError: the file is not a whole policy file, or its graph fails.
    """
    artifact = read_artifact(path)
    session = PolicySession(artifact.model, artifact.contract, artifact.digest, path)
    try:
        return artifact, session, replay(session, artifact.trace)
    except Exception as error:  # of onnxruntime, whose types have no common base
        raise ArtifactError(f"{path}: graph fails on its trace: {' '.join(str(error).split())}") from None


def replay(session: PolicySession, trace: Trace) -> Deviation:
    """Run the decisions of a trace free, each from the state of the one before, and compare."""
    states, actions = decide_all(session, trace.sources, trace.reset)
    return Deviation(
        action=_largest(actions - trace.actions),
        action_scale=_largest(trace.actions),
        state=_largest(states - trace.states) / max(_largest(trace.states), 1e-12),
    )


def decide_all(session: PolicySession, sources: Tensors, reset: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Decide N times in a row from the initial state; the session is reset before and after.

    Args:
        session: the policy.
        sources: per source `[N, *shape]`.
        reset: `[N]`; the state is put to its initial values before a decision that is marked.

    Returns:
        States `[N, S]` after every decision, and actions `[N, H, A]`.
    """
    contract = session.contract
    states = np.zeros((len(reset), contract.state_size), np.float32)
    actions = np.zeros((len(reset), contract.chunk_size, len(contract.action_joints)), np.float32)
    session.reset()
    for i in range(len(reset)):
        if reset[i]:
            session.reset()
        for name, values in session.inputs.items():
            values[0] = sources[name][i]
        actions[i] = session.infer()
        session.commit()
        states[i] = session.state()
    session.reset()
    for values in session.inputs.values():
        values.fill(0.0)
    return states, actions


def _create_session(model: bytes, where: str | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # Spinning pool threads starve the control loop that waits for them.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised, and must not be written to a blocked stderr too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # int8 weights lose accuracy on x86 without VNNI otherwise (onnxruntime #6004).
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception types have no common base
        reason = " ".join(str(error).split())
        version = onnxruntime.__version__
        raise ArtifactError(f"{where}: onnxruntime {version} does not load the graph: {reason}") from None


def _check_tensors(where: str | Path, graph: list[onnxruntime.NodeArg], arrays: Tensors) -> None:
    found = {tensor.name: f"{tensor.type} {tensor.shape}" for tensor in graph}
    expected = {name: f"tensor(float) {list(array.shape)}" for name, array in arrays.items()}
    if found.keys() != expected.keys():
        raise ArtifactError(f"{where}: graph has tensors {sorted(found)}, contract says {sorted(expected)}")
    for name, text in expected.items():
        if found[name] != text:
            raise ArtifactError(f"{where}: tensor {name!r} is {found[name]}, contract says {text}")


def _lay_out(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Floats, dict[str, Floats], dict[str, slice]]:
    """Zeros for several tensors in one piece of memory, each beginning at a multiple of 64 bytes."""
    places, end = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        places[name] = slice(end, end + size)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(end + ALIGNMENT, np.float32)
    start = -(memory.ctypes.data // 4) % ALIGNMENT
    flat = memory[start : start + end]
    return flat, {name: flat[place].reshape(shapes[name]) for name, place in places.items()}, places


def _largest(values: Floats) -> float:
    return float(np.abs(values).max(initial=0.0))

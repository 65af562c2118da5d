"""A policy file as a function with memory: onnxruntime, one thread, nothing allocated per decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .artifact import Trace, read_artifact
from .contract import Contract
from .errors import ArtifactError

GOLDEN_TOLERANCE = 1e-4
"""Largest deviation from the golden trace. The export demands 1e-5 on its own machine; other processors sum
in another order (float32 kernels were seen to differ by 5e-7 per decision), and the memory feeds that back.
"""


class PolicySession:
    """The graph with its memory `h`.

    Two bindings are used in turn: one reads `h` from the first state buffer and writes the next state to the
    second, the other the reverse. So a decision that is not committed leaves `h` untouched, bit by bit.
    """

    contract: Contract
    digest: str
    inputs: dict[str, NDArray[np.float32]]
    """Per source `[1, *shape]`: filled in place by the caller before `infer`."""
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
        self.inputs = {source.name: _zeros(1, *source.shape) for source in contract.sources}
        self._actions = _zeros(1, contract.chunk_size, len(contract.action_joints))
        self._states = (_zeros(1, contract.state_size), _zeros(1, contract.state_size))
        _check_tensors(where, self._session.get_inputs(), {**self.inputs, "h_in": self._states[0]})
        outputs = {"actions": self._actions, "h_out": self._states[0]}
        _check_tensors(where, self._session.get_outputs(), outputs)
        self._initial = np.array([v for state in contract.states for v in state.initial], np.float32)
        self._chunk: NDArray[np.float32] = self._actions[0]
        self._bindings = (self._bind(0), self._bind(1))
        size = self._actions.size
        self._all_finite = np.empty(size + contract.state_size, np.bool_)
        self._actions_finite = self._all_finite[:size].reshape(self._actions.shape)
        self._state_finite = self._all_finite[size:].reshape(1, -1)
        self._current = 0
        self._pending = False
        self.reset()

    def infer(self) -> NDArray[np.float32]:
        """Decide from `inputs` and `h`, which stays as it is.

        Returns:
            Chunk `[H, A]` in SI units: a view, valid until the next call.
        """
        self._session.run_with_iobinding(self._bindings[self._current])
        np.isfinite(self._actions, out=self._actions_finite)
        np.isfinite(self._states[1 - self._current], out=self._state_finite)
        self.finite = np.count_nonzero(self._all_finite) == self._all_finite.size
        self._pending = True
        return self._chunk

    def commit(self) -> None:
        """Make the next state of the last `infer` the memory.

        Raises:
            RuntimeError: no decision since the last `commit` or `reset`.
        """
        if not self._pending:
            raise RuntimeError("commit() without a decision since the last commit() or reset()")
        self._current = 1 - self._current
        self._pending = False

    def reset(self) -> None:
        """Put `h` to its initial values; a decision that waits for `commit` is dropped."""
        self._states[self._current][0] = self._initial
        self._pending = False

    def state(self) -> NDArray[np.float32]:
        """A copy of `h`, `[S]`."""
        return self._states[self._current].reshape(-1).copy()

    def _bind(self, current: int) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        inputs = {**self.inputs, "h_in": self._states[current]}
        outputs = {"actions": self._actions, "h_out": self._states[1 - current]}
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


def load_policy(path: str | Path) -> PolicySession:
    """Read a policy file, replay its golden trace, and leave the memory at its initial values.

    Raises:
        ArtifactError: not a whole policy file, or this machine does not reproduce its golden trace.
    """
    artifact = read_artifact(path)
    session = PolicySession(artifact.model, artifact.contract, artifact.digest, path)
    deviation = replay(session, artifact.trace)
    if not deviation.within(GOLDEN_TOLERANCE):
        raise ArtifactError(
            f"{path}: golden trace is not reproduced within {GOLDEN_TOLERANCE:.0e}: actions of up to "
            f"{deviation.action_scale:.3g} differ by {deviation.action:.1e}, "
            f"states by {deviation.state:.1e} of the largest"
        )
    return session


def replay(session: PolicySession, trace: Trace) -> Deviation:
    """Run the decisions of a trace free, each from the state of the one before, and compare."""
    states, actions = decide_all(session, trace.sources, trace.reset)
    return Deviation(
        action=_largest(actions - trace.actions),
        action_scale=_largest(trace.actions),
        state=_largest(states - trace.states) / max(_largest(trace.states), 1e-12),
    )


def decide_all(
    session: PolicySession, sources: Mapping[str, NDArray[np.float32]], reset: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Decide N times in a row from the initial state; the session is reset before and after.

    Args:
        session: the policy.
        sources: per source `[N, *shape]`.
        reset: `[N]`; the state is put to its initial values before a decision that is marked.

    Returns:
        States `[N, S]` after every decision, and actions `[N, H, A]`.
    """
    contract = session.contract
    states = _zeros(len(reset), contract.state_size)
    actions = _zeros(len(reset), contract.chunk_size, len(contract.action_joints))
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
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # int8 weights lose accuracy on x86 without VNNI otherwise (onnxruntime #6004).
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception types have no common base
        reason = " ".join(str(error).split())
        raise ArtifactError(
            f"{where}: onnxruntime {onnxruntime.__version__} does not load the graph: {reason}"
        ) from None


def _check_tensors(
    where: str | Path, found: list[onnxruntime.NodeArg], expected: Mapping[str, NDArray[np.float32]]
) -> None:
    shapes = {tensor.name: (tensor.type, tensor.shape) for tensor in found}
    if shapes.keys() != expected.keys():
        raise ArtifactError(f"{where}: graph has tensors {sorted(shapes)}, contract says {sorted(expected)}")
    for name, array in expected.items():
        if shapes[name] != ("tensor(float)", list(array.shape)):
            kind, shape = shapes[name]
            raise ArtifactError(
                f"{where}: tensor {name!r} is {kind} {shape}, contract says tensor(float) {list(array.shape)}"
            )


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def _largest(values: NDArray[np.float32]) -> float:
    return float(np.abs(values).max(initial=0.0))

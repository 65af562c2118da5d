"""From a policy to one verified file: nothing is written unless the graph proved to be the policy."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from msgspec import structs
from numpy.typing import NDArray

from andante.runtime.artifact import Trace
from andante.runtime.contract import NO_ASSERTION, Contract, Verification
from andante.runtime.errors import AndanteError
from andante.runtime.policy import PolicySession, decide_all, load_policy, replay
from andante.sim.spec.randomization import Randomization
from andante.train.checkpoint import load_run
from andante.train.policy import Policy

from .contract import build_contract
from .observations import Observations, observe
from .onnx import to_onnx
from .seal import seal

TOLERANCE = 1e-5
"""Largest deviation of the graph from the module, see `Deviation.within`."""

TRACE_DECISIONS, TRACE_RESTART = 64, 40
REPLAY_DECISIONS, REPLAY_RESTART = 1000, 250


def export_run(
    run_dir: str | Path, output: str | Path, seed: int = 0, licence: str = NO_ASSERTION
) -> Verification:
    """Write a run's best policy as one verified file.

    Args:
        run_dir: folder of a run.
        output: the file; one that exists is replaced at the end, if all went well.
        seed: of the observations that the export is tried on.
        licence: SPDX identifier for the policy.

    Raises:
        AndanteError: no run there, one that has no policy yet, no place for `output`, an impossible seed, or
            the exported graph is not the policy; `output` is as it was before.
    """
    run = load_run(run_dir)
    if not run.evaluated:
        raise AndanteError(f"{run_dir}: no policy yet: {run.ticks} ticks trained, none evaluated")
    provenance = {
        **run.provenance,
        "run": Path(run_dir).resolve().name,
        "train.ticks": str(run.ticks),
        "train.finished": "false" if run.result is None else "true",
    }
    randomization = run.config.randomization.whole
    return export_policy(run.policy, provenance, Path(output), seed, licence, randomization)


def export_policy(
    policy: Policy,
    provenance: dict[str, str],
    output: Path,
    seed: int = 0,
    licence: str = NO_ASSERTION,
    randomization: Randomization | None = None,
) -> Verification:
    """As `export_run`, for a policy in memory; it is frozen by this."""
    if not output.parent.is_dir():
        raise AndanteError(f"{output}: no folder {output.parent}")
    if output.is_dir():
        raise AndanteError(f"{output}: is a folder, expected the name of a file")
    if not 0 <= seed < 2**63:
        raise AndanteError(f"seed must be 0 to 2^63 - 1, found {seed}")
    policy.freeze()
    model = to_onnx(policy)
    unverified = Verification(decisions=0, resets=0, max_action_error=0.0, max_state_error=0.0)
    draft = build_contract(
        policy,
        _provenance() | provenance,
        licence,
        unverified,
        (0.0,) * len(policy.state_spec()),
        randomization,
    )
    session = PolicySession(model, draft, "", output)

    golden = observe(policy, TRACE_DECISIONS, seed, TRACE_RESTART, randomization)
    trace = Trace(golden.sources, golden.reset, *decide_all(session, golden.sources, golden.reset))
    # Another world than the trace's, so that no observation is used twice.
    longer = observe(policy, REPLAY_DECISIONS, seed + 1, REPLAY_RESTART, randomization)
    reference = Trace(longer.sources, longer.reset, *decide_in_torch(policy, longer))
    verification = _verify(session, reference, output)
    contract = _finish(draft, verification, np.concatenate([trace.states, reference.states]))
    _write(output, seal(model, contract, trace))
    return verification


@torch.no_grad()
def decide_in_torch(
    policy: Policy, observations: Observations
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the module itself does, one decision at a time: states `[N, S]`, actions `[N, H, A]`."""
    h = policy.initial_state(1)
    states, actions = [], []
    for i, reset in enumerate(observations.reset):
        if reset:
            h = policy.initial_state(1)
        inputs = [torch.from_numpy(values[i : i + 1]) for values in observations.sources.values()]
        action, h = policy(*inputs, h)
        states.append(h)
        actions.append(action)
    return torch.cat(states).numpy(), torch.cat(actions).numpy()


def _verify(session: PolicySession, reference: Trace, output: Path) -> Verification:
    deviation = replay(session, reference)
    if not deviation.within(TOLERANCE):
        raise AndanteError(
            f"{output}: not written: over {len(reference.reset)} decisions the exported graph is not within "
            f"{TOLERANCE:.0e} of the policy: actions of up to {deviation.action_scale:.3g} differ by "
            f"{deviation.action:.1e}, states by {deviation.state:.1e} of the largest"
        )
    return Verification(
        decisions=len(reference.reset),
        resets=int(reference.reset.sum()),
        max_action_error=deviation.action,
        max_state_error=deviation.state,
    )


def _finish(draft: Contract, verification: Verification, states: NDArray[np.float32]) -> Contract:
    largest = np.abs(states).max(axis=0)
    ends = np.cumsum([state.size for state in draft.states])
    seen = tuple(
        structs.replace(state, max_seen=float(largest[end - state.size : end].max()))
        for state, end in zip(draft.states, ends, strict=True)
    )
    return structs.replace(draft, states=seen, verification=verification)


def _provenance() -> dict[str, str]:
    return {
        "export.andante": version("andante"),
        "export.python": platform.python_version(),
        "export.torch": str(torch.__version__),
        "export.onnx": onnx.__version__,
        "export.onnxruntime": onnxruntime.__version__,
    }


def _write(output: Path, content: bytes) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        load_policy(temporary)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)

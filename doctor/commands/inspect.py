"""`andante inspect`: a policy file's contract, for people or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from tyro.conf import Positional

from andante.runtime.artifact import Artifact, read_artifact
from andante.runtime.contract import Trained


def inspect(policy: Positional[Path], json: bool = False) -> None:
    """Print what a policy file reads, emits and assumes.

    Args:
        policy: The policy file.
        json: Print the contract as it is in the file.
    """
    artifact = read_artifact(policy)
    print(artifact.contract.to_json() if json else "\n".join(describe(artifact)))


def describe(artifact: Artifact) -> Iterator[str]:
    """The lines of the report: what is most asked for, then sources, actions, states and provenance whole."""
    contract = artifact.contract
    verification, licences = contract.verification, contract.licences
    period_ms = contract.control_period_ns / 1e6
    yield f"{artifact.path}: {contract.task}, for robot model {contract.robot_model}"
    facts = {
        "file": f"{len(artifact.model) / 1e3:.0f} kB, contract schema {contract.schema}",
        "digest": f"sha256 {artifact.digest}",
        "rate": f"{1e3 / period_ms:g} Hz: a tick of {period_ms:g} ms is {contract.decimation} physics steps",
        "chunk": f"H = {contract.chunk_size} actions per decision",
        "horizon": f"s = {_trained(contract.execution_horizon)} ticks between decisions",
        "delay": f"d = {_trained(contract.inference_delay)} ticks from observation to action",
        "memory": f"S = {contract.state_size}; reset by a gap of more than {contract.max_gap_ticks} ticks",
        "licences": f"policy {licences.policy}, robot model {licences.robot_model}, data {licences.data}",
        "verified": f"{verification.decisions} decisions, {verification.resets} resets, against training: "
        f"actions within {verification.max_action_error:.1e}, "
        f"states within {verification.max_state_error:.1e} of the largest",
        "golden trace": str(artifact.trace),
    }
    for name, text in facts.items():
        yield f"  {name:<14}{text}"
    whole = msgspec.to_builtins(contract)
    for key in ("sources", "actions", "states", "provenance"):
        text = yaml.safe_dump({key: whole[key]}, sort_keys=False, default_flow_style=None, width=110)
        yield "\n" + text.rstrip()


def _trained(trained: Trained) -> str:
    return f"{trained.default} (trained: {', '.join(map(str, trained.values))})"

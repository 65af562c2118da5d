"""`andante inspect`: a policy file's contract, for people or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tyro.conf import Positional

from ..artifact import Artifact, read_artifact
from ..contract import Contract, Source, Trained


def inspect(policy: Positional[Path], json: bool = False) -> None:
    """Print what a policy file reads, emits and assumes.

    Args:
        policy: The policy file.
        json: Print the contract as it is in the file.
    """
    artifact = read_artifact(policy)
    print(artifact.contract.to_json() if json else "\n".join(describe(artifact)))


def describe(artifact: Artifact) -> Iterator[str]:
    """The lines of the report."""
    contract = artifact.contract
    yield f"{artifact.path}: {contract.task}, for robot model {contract.robot_model}"
    yield from _facts(artifact)
    sources = [(s.name, s.kind, s.unit, _age(s), ", ".join(s.elements)) for s in contract.sources]
    yield from _table("source, kind, unit, largest age, joints", sources)
    head = "action, kind, joint, unit, range, kp, kd, closed by, between ticks"
    yield from _table(head, _action_rows(contract))
    states = [(s.name, str(s.size), f"{s.max_seen:.4g}") for s in contract.states]
    yield from _table("state, size, largest seen", states)
    yield from _table("provenance, ", sorted(contract.provenance.items()))


def _age(source: Source) -> str:
    return "" if source.max_age_ns is None else f"{source.max_age_ns / 1e6:g} ms"


def _facts(artifact: Artifact) -> Iterator[str]:
    contract = artifact.contract
    verification, licences = contract.verification, contract.licences
    period_ms = contract.control_period_ns / 1e6
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


def _trained(trained: Trained) -> str:
    return f"{trained.default} (trained: {', '.join(map(str, trained.values))})"


def _action_rows(contract: Contract) -> Iterator[tuple[str, ...]]:
    for term in contract.actions:
        closed_by = term.closed_by if term.kind == "position" else "-"
        for joint, low, high, kp, kd in zip(term.joints, term.low, term.high, term.kp, term.kd, strict=True):
            numbers = f"[{low:g}, {high:g}]", f"{kp:g}", f"{kd:g}"
            yield term.name, term.kind, joint, term.unit, *numbers, closed_by, term.interpolation


def _table(head: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    table = [head.split(", "), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()

"""The contract of a trained policy: every fact taken from the task or from the policy itself."""

from __future__ import annotations

from msgspec import structs

from andante.runtime.contract import (
    NO_ASSERTION,
    SCHEMA,
    ActionTerm,
    Contract,
    Licences,
    StateTensor,
    Trained,
    Verification,
)
from andante.sim.spec.randomization import Randomization
from andante.sim.spec.task import TaskSpec
from andante.train.policy import Policy


def build_contract(
    policy: Policy,
    provenance: dict[str, str],
    licence: str,
    verification: Verification,
    max_seen: tuple[float, ...],
    randomization: Randomization | None = None,
) -> Contract:
    """Describe a policy.

    Args:
        policy: its task and state are described.
        provenance: how it came to be.
        licence: SPDX identifier for the policy.
        verification: of its export.
        max_seen: largest absolute value per state tensor.
        randomization: of the training, which says for what timing it was.
    """
    spec = policy.spec
    trained = randomization or Randomization()
    horizons = trained.ticks("execution_horizon", policy.execution_horizon)
    delays = trained.ticks("inference_delay", 0)
    own = policy.execution_horizon
    return Contract(
        schema=SCHEMA,
        task=spec.name,
        robot_model=spec.robot_name,
        control_period_ns=spec.control_period_ns,
        decimation=spec.decimation,
        chunk_size=policy.chunk_size,
        execution_horizon=Trained(values=horizons, default=own if own in horizons else max(horizons)),
        inference_delay=Trained(values=delays, default=min(delays)),
        max_gap_ticks=spec.max_gap_ticks,
        sources=spec.sources,
        actions=_centered(spec),
        states=tuple(
            StateTensor(name=state.name, size=state.size, initial=state.initial, max_seen=largest)
            for state, largest in zip(policy.state_spec(), max_seen, strict=True)
        ),
        licences=Licences(policy=licence, robot_model=spec.robot_licence, data=NO_ASSERTION),
        provenance=provenance,
        verification=verification,
    )


def _centered(spec: TaskSpec) -> tuple[ActionTerm, ...]:
    """The task's action terms, with what counts as executed before the first action."""
    if spec.action_center is None:
        return spec.actions
    middle = iter(spec.action_middle)
    return tuple(
        structs.replace(term, center=tuple(next(middle) for _ in term.joints)) for term in spec.actions
    )

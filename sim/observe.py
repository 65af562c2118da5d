"""What robots measure: from true values to the sources of a contract, with their histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mujoco
import torch
from torch import Tensor

from andante.runtime.contract import Source
from andante.runtime.errors import AndanteError

from .spec.task import TaskSpec
from .task import Ticks

Reader = Callable[[Ticks, Tensor], Tensor]
"""(ticks, raw actions [B, n, A]) -> what a source reads after each tick [B, n, size]."""


def gravity_direction(quaternion: Tensor) -> Tensor:
    """Gravity's direction [..., 3] along the axes of a frame whose orientation is w, x, y, z [..., 4]."""
    w, x, y, z = quaternion.unbind(-1)
    half = torch.stack((w * y - x * z, -w * x - y * z, x * x + y * y - 0.5), -1)
    return 2 * half


def clock_phase(tick: Tensor, control_period_ns: int, period_ns: int) -> Tensor:
    """Share of the period [...] that has passed after `tick` int64 [...] ticks; exact for any number."""
    return ((tick * control_period_ns % period_ns).double() / period_ns).float()


class Observer:
    """What B robots measure, tick by tick. Owns the histories; knows sources, not tasks.

    `readings` are exact; whoever wants noise perturbs them before they go into `reset` or `update`.
    """

    def __init__(
        self,
        spec: TaskSpec,
        model: mujoco.MjModel,
        num_worlds: int,
        device: torch.device,
        own: Mapping[str, Callable[[Ticks], Tensor]],
    ):
        """Look up where each source is found, `own` being the task's readings; every history is of zeros."""
        self._readers = {
            source.name: _reader(source, spec, model, device, own)
            for source in spec.sources
            if source.kind != "committed_actions"
        }
        self._rows = {
            source.name: torch.zeros(num_worlds, source.history, len(source.elements), device=device)
            for source in spec.sources
        }
        self._shapes = {source.name: source.shape for source in spec.sources}

    def readings(self, ticks: Ticks, raw: Tensor) -> dict[str, Tensor]:
        """What sources read after each of n ticks, float32 [B, n, size]; `raw` are the actions [B, n, A].

        Actions committed before a decision are not read: they stay zero.
        """
        return {name: read(ticks, raw) for name, read in self._readers.items()}

    def reset(self, worlds: Tensor, readings: Mapping[str, Tensor]) -> None:
        """Begin anew in `worlds` [k]: every row of a history is the first reading [k, 1, size]."""
        for name, reading in readings.items():
            self._rows[name][worlds] = reading

    def update(self, readings: Mapping[str, Tensor]) -> None:
        """Take over what was read after n more ticks [B, n, size]."""
        for name, reading in readings.items():
            rows = self._rows[name]
            history = rows.shape[1]
            if reading.shape[1] >= history:
                rows.copy_(reading[:, -history:])
            else:
                rows.copy_(torch.cat((rows[:, reading.shape[1] :], reading), 1))

    def observe(self) -> dict[str, Tensor]:
        """All sources, float32 [B, *shape]: copies, that nobody overwrites."""
        return {name: rows.view(-1, *self._shapes[name]).clone() for name, rows in self._rows.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {name: rows.clone() for name, rows in self._rows.items()}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue where `state_dict` was taken."""
        for name, rows in self._rows.items():
            rows.copy_(saved[name])


def _reader(
    source: Source,
    spec: TaskSpec,
    model: mujoco.MjModel,
    device: torch.device,
    own: Mapping[str, Callable[[Ticks], Tensor]],
) -> Reader:
    match source.kind:
        case "joint_position":
            positions = columns([model.joint(name).qposadr[0] for name in source.joints], device)
            return lambda ticks, raw: ticks.qpos[..., positions].float()
        case "joint_velocity":
            velocities = columns([model.joint(name).dofadr[0] for name in source.joints], device)
            return lambda ticks, raw: ticks.qvel[..., velocities].float()
        case "gravity":
            return lambda ticks, raw: gravity_direction(ticks.sensors[f"gravity/{source.frame}"].float())
        case "angular_velocity" | "linear_acceleration" | "linear_velocity" | "position":
            return lambda ticks, raw: ticks.sensors[f"{source.kind}/{source.frame}"].float()
        case "command":
            return lambda ticks, raw: ticks.command
        case "executed_action":
            return lambda ticks, raw: raw if source.stage == "raw" else ticks.action
        case "clock":
            tick_ns, period_ns = spec.control_period_ns, source.period_ns or 1
            return lambda ticks, raw: clock_phase(ticks.tick, tick_ns, period_ns).unsqueeze(-1)
        case "reading" if source.name in own:
            return lambda ticks, raw: own[source.name](ticks).float()
        case "reading":
            return lambda ticks, raw: _read(source.name, ticks)
    raise AndanteError(f"source {source.name!r}: kind {source.kind} is not simulated")


def _read(name: str, ticks: Ticks) -> Tensor:
    values = ticks.sensors.get(name, ticks.variables.get(name))
    if values is None:
        raise AndanteError(
            f"source {name!r}: no sensor of the model, variable or reading of the task has that name"
        )
    return values.float()


def columns(indices: list[int], device: torch.device) -> slice | Tensor:
    """Consecutive ones as a slice: it needs no copy."""
    first = indices[0]
    if indices == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return torch.tensor(indices, device=device)

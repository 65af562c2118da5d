"""What randomised sensors make of exact readings: mounting, offsets, noise, delays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from andante.runtime.contract import BODY_KINDS, JOINT_KINDS

from ..randomness import Draws
from ..spec.randomization import Randomization
from ..spec.task import TaskSpec
from ..task import Ticks
from .delay import DelayLine
from .draw import Field, Floats
from .noise import white_noise
from .physics import tilts
from .rotation import rotations

MEASURED = (*JOINT_KINDS, *BODY_KINDS, "reading")
"""Kinds of sources that pass through a sensor; the others the controller knows, or is told."""
TURNED = ("angular_velocity", "linear_acceleration", "linear_velocity", "gravity")
"""Those along the axes of their sensor."""
GRAVITY = "gravity"

DrawsAt = Callable[[Tensor, Tensor], Draws]
"""The draws of worlds [m] at their ticks [m]."""


class RandomSensors:
    """Owns what is wrong with the sensors of each of B worlds in its episode."""

    fields: dict[str, Field]

    def __init__(
        self,
        randomization: Randomization,
        spec: TaskSpec,
        encoders: Sequence[str],
        tilted: bool,
        num_worlds: int,
        device: torch.device,
    ):
        """Find what the names mean; `encoders` are the joints of the field `zero_offset`.

        Raises:
            AndanteError: a source or frame that the task does not measure.
        """
        self._measured = [source for source in spec.sources if source.kind in MEASURED]
        self._encoders = list(encoders)
        ends = np.cumsum([len(source.elements) for source in self._measured]).tolist()
        self._places = [
            (slice(end - len(source.elements), end), source)
            for source, end in zip(self._measured, ends, strict=True)
        ]
        frames = dict.fromkeys(source.frame for source in self._measured if source.kind in TURNED)
        by_element = [source.name for source in self._measured for _ in source.elements]
        by_source = [source.name for source in self._measured]
        found = (
            Field.of(randomization, "mounting", list(frames), "frame of an IMU", components=3),
            Field.of(randomization, "noise", by_element, "measured source"),
            Field.of(randomization, "bias", by_element, "measured source"),
            Field.of(randomization, "observation_delay", by_source, "measured source"),
        )
        self.fields = {field.name: field for field in found if field is not None}
        self._frames = list(frames)
        self._turn = torch.eye(3, device=device).repeat(num_worlds, len(frames), 1, 1)
        self._gravity = torch.tensor([0.0, 0.0, -1.0], device=device).repeat(num_worlds, 1)
        self._tilted = tilted
        self._offset = torch.zeros(num_worlds, len(by_element), device=device)
        self._std = torch.zeros(num_worlds, len(by_element), device=device)
        self._offsets = "bias" in self.fields or bool(randomization.zero_offset)
        self._delays = self._delay_lines(num_worlds, device)

    def restart(self, worlds: Tensor, values: Mapping[str, Floats]) -> None:
        """Begin an episode in `worlds` [k] with the fields' values [k, E, C]."""
        if "mounting" in values:
            # What a turned sensor reads is turned the other way.
            _set(self._turn, worlds, rotations(values["mounting"]).swapaxes(-1, -2))
        if "gravity_tilt" in values:
            _set(self._gravity, worlds, -tilts(values["gravity_tilt"])[..., 2])
        if "noise" in values:
            _set(self._std, worlds, values["noise"][..., 0])
        if self._offsets:
            _set(self._offset, worlds, self._add_up(len(worlds), values))
        for i, source in enumerate(self._measured):
            if source.name in self._delays:
                delay = torch.from_numpy(values["observation_delay"][:, i, 0])
                self._delays[source.name].restart(worlds, delay)

    def _add_up(self, worlds: int, values: Mapping[str, Floats]) -> Floats:
        """What each measured element reads too much [k, elements]."""
        offset = np.zeros((worlds, self._offset.shape[1]))
        if "bias" in values:
            offset += values["bias"][..., 0]
        if "zero_offset" in values:
            for columns, source in self._places:
                if source.kind == "joint_position":
                    encoders = [self._encoders.index(joint) for joint in source.joints]
                    offset[:, columns] += values["zero_offset"][:, encoders, 0]
        return offset

    def begin(
        self, worlds: Tensor, exact: Mapping[str, Tensor], ticks: Ticks, draws: DrawsAt
    ) -> dict[str, Tensor]:
        """The first readings [k, 1, size] of an episode of `worlds` [k], from the exact ones."""
        readings = self._perturb(worlds, exact, ticks, draws)
        for name, line in self._delays.items():
            line.fill(worlds, readings[name][:, 0])
        return readings

    def measure(self, exact: Mapping[str, Tensor], ticks: Ticks, draws: DrawsAt) -> dict[str, Tensor]:
        """What arrives after each of n ticks [B, n, size], from the exact readings."""
        readings = self._perturb(torch.arange(len(ticks.tick), device=ticks.tick.device), exact, ticks, draws)
        return readings | {name: line.push(readings[name]) for name, line in self._delays.items()}

    def state_dict(self) -> dict[str, Any]:
        """What has been measured and did not arrive yet; the rest is drawn again."""
        return {name: line.state_dict() for name, line in self._delays.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken, after a `restart` with the same values."""
        for name, line in self._delays.items():
            line.load_state_dict(saved[name])

    def _perturb(
        self, worlds: Tensor, exact: Mapping[str, Tensor], ticks: Ticks, draws: DrawsAt
    ) -> dict[str, Tensor]:
        readings, noise = dict(exact), None
        if "noise" in self.fields:
            n = ticks.tick.shape[1]
            at = draws(worlds.repeat_interleave(n), ticks.tick.flatten())
            noise = white_noise(at, "noise", self._std.shape[1]).view(len(worlds), n, -1)
            noise = noise * self._std[worlds, None]
        for columns, source in self._places:
            reading = readings[source.name]
            if self._tilted and source.kind == GRAVITY:
                orientation = ticks.sensors[f"{GRAVITY}/{source.frame}"].float()
                reading = _along_axes(orientation, self._gravity[worlds, None])
            if "mounting" in self.fields and source.kind in TURNED:
                reading = _turned(self._turn[worlds, None, self._frames.index(source.frame)], reading)
            if self._offsets:
                reading = reading + self._offset[worlds, None, columns]
            if noise is not None:
                reading = reading + noise[..., columns]
            readings[source.name] = reading
        return readings

    def _delay_lines(self, num_worlds: int, device: torch.device) -> dict[str, DelayLine]:
        if "observation_delay" not in self.fields:
            return {}
        longest = self.fields["observation_delay"].most.astype(int).tolist()
        return {
            source.name: DelayLine(num_worlds, ticks, len(source.elements), device)
            for source, ticks in zip(self._measured, longest, strict=True)
            if ticks > 0
        }


def _set(of_all: Tensor, worlds: Tensor, values: Floats) -> None:
    of_all[worlds] = torch.from_numpy(values).to(of_all)


def _turned(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Matrices [..., 3, 3], vectors [..., 3] -> [..., 3]; written out, so that the order of sums is fixed."""
    x, y, z = vectors[..., None].unbind(-2)
    return matrices[..., 0] * x + matrices[..., 1] * y + matrices[..., 2] * z


def _along_axes(orientation: Tensor, vector: Tensor) -> Tensor:
    """A vector of the world [..., 3] along the axes of a frame with orientation w, x, y, z [..., 4]."""
    w, x, y, z = orientation.unbind(-1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)),
        (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)),
        (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)),
    )
    a, b, c = vector.unbind(-1)
    return torch.stack([row[0] * a + row[1] * b + row[2] * c for row in rows], -1)

"""From raw sources to features, and from the network's numbers to joint targets."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from andante.runtime.contract import Source
from andante.runtime.errors import AndanteError
from andante.sim.spec.task import Feature, TaskSpec


class Features(nn.Module):
    """The columns that a task's `features` declare: scaled identities, then sines, then cosines.

    A source with a history gives its columns for every tick of it, oldest first.

    Raises:
        AndanteError: a feature names a source or an element that there is not, or has a scale or an offset
            too many.
    """

    direct: Tensor
    offset: Tensor
    scale: Tensor
    angles: Tensor
    radians: Tensor

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        self.sources = tuple(source.name for source in spec.sources)
        self._histories = tuple(source.name for source in spec.sources if source.history > 1)
        first = _first_columns(spec.sources)
        direct: list[_Column] = []
        angles: list[_Column] = []
        for feature in spec.features:
            columns = _columns(feature, spec.sources, first)
            (direct if feature.transform == "identity" else angles).extend(columns)
        self.size = len(direct) + 2 * len(angles)
        for name, values in {
            "direct": torch.tensor([each.column for each in direct], dtype=torch.int64),
            "offset": torch.tensor([each.offset for each in direct]),
            "scale": torch.tensor([each.scale for each in direct]),
            "angles": torch.tensor([each.column for each in angles], dtype=torch.int64),
            "radians": torch.tensor([each.scale for each in angles]),
        }.items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, sources: dict[str, Tensor]) -> Tensor:
        """Sources {name: [..., *shape]} in SI units -> features [..., size]."""
        flat = [
            sources[name].flatten(-2) if name in self._histories else sources[name] for name in self.sources
        ]
        raw = torch.cat(flat, -1)
        direct = (raw.index_select(-1, self.direct) - self.offset) * self.scale
        angles = raw.index_select(-1, self.angles) * self.radians
        return torch.cat([direct, angles.sin(), angles.cos()], -1)


class ActionDecoder(nn.Module):
    """Action u around the task's `action_center`, in units of its `action_scale` -> SI, within the range."""

    low: Tensor
    high: Tensor
    offset: Tensor
    scale: Tensor

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("offset", torch.tensor(spec.action_middle), persistent=False)
        self.register_buffer("scale", torch.tensor(spec.action_unit), persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        """u [..., A] -> SI actions [..., A]."""
        return torch.clamp(self.offset + self.scale * u, self.low, self.high)

    def encode(self, actions: Tensor) -> Tensor:
        """SI actions [..., A] -> u [..., A]."""
        return (actions - self.offset) / self.scale

    def random(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """SI actions [*shape, A], uniform over the range."""
        share = torch.rand((*shape, len(self.low)), generator=generator)
        return self.low + (self.high - self.low) * share


class _Column(NamedTuple):
    """One column of all sources side by side, and what is done to it."""

    column: int
    offset: float
    scale: float


def _first_columns(sources: tuple[Source, ...]) -> dict[str, int]:
    first, column = {}, 0
    for source in sources:
        first[source.name] = column
        column += math.prod(source.shape)
    return first


def _columns(feature: Feature, sources: tuple[Source, ...], first: dict[str, int]) -> list[_Column]:
    if feature.source not in first:
        raise AndanteError(f"feature: no source {feature.source!r}; sources: {', '.join(first)}")
    source = next(source for source in sources if source.name == feature.source)
    elements = source.elements if feature.elements is None else feature.elements
    where = f"feature of source {source.name!r}"
    for element in elements:
        if element not in source.elements:
            raise AndanteError(f"{where}: no element {element!r}; elements: {', '.join(source.elements)}")
    if feature.transform == "identity":
        scales = _spread(f"{where}: scale", feature.scale, len(elements))
        offsets = _spread(f"{where}: offset", feature.offset, len(elements))
    else:
        radians = 1.0 if feature.transform == "sin_cos" else 2.0 * math.pi
        scales, offsets = (radians,) * len(elements), (0.0,) * len(elements)
    places = [source.elements.index(element) for element in elements]
    return [
        _Column(first[source.name] + tick * len(source.elements) + place, offset, scale)
        for tick in range(source.history)
        for place, offset, scale in zip(places, offsets, scales, strict=True)
    ]


def _spread(what: str, value: float | tuple[float, ...], count: int) -> tuple[float, ...]:
    values = value if isinstance(value, tuple) else (value,) * count
    if len(values) != count:
        raise AndanteError(f"{what}: expected one value or {count}, found {len(values)}")
    return values

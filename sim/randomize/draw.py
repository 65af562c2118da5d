"""From distributions to values: for each field of a randomisation, one per element of the robot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from numpy.typing import NDArray

from andante.runtime.errors import AndanteError

from ..spec.randomization import (
    FACTORS,
    IN_TICKS,
    Choice,
    Distribution,
    Entry,
    LogUniform,
    Normal,
    Randomization,
    Uniform,
)

Floats = NDArray[np.float64]
SMALLEST_DRAW = 2.0**-54
"""Half the step of uniform draws: keeps their normal quantiles finite."""


def sample(distribution: Distribution, uniform: Floats, whole: bool = False) -> Floats:
    """Values [...] of a distribution from uniform draws [...]; `whole` ones are all equally likely."""
    match distribution:
        case Uniform(low=low, high=high):
            if whole:
                return low + np.floor(uniform * (high - low + 1.0))
            values = low + uniform * (high - low)
        case LogUniform(low=low, high=high):
            values = np.exp(np.log(low) + uniform * (np.log(high) - np.log(low)))
        case Normal(mean=mean, std=std, low=low, high=high):
            draws = torch.from_numpy(np.maximum(uniform, SMALLEST_DRAW))
            values = mean + std * torch.special.ndtri(draws).numpy()
        case Choice(values=choices):
            return np.array(choices)[(uniform * len(choices)).astype(np.int64)]
        case _:
            return np.full(uniform.shape, float(distribution))
    values = np.clip(values, low, high)
    return np.round(values) if whole else values


@dataclass(frozen=True)
class Field:
    """One field of a randomisation, for the elements that one robot has of it."""

    name: str
    elements: tuple[str, ...]
    """E names, not all different where a name has several elements."""
    components: int
    """C: numbers per element."""
    entries: tuple[tuple[Entry, NDArray[np.intp]], ...]
    """What was given, and which elements it concerns."""

    @classmethod
    def of(
        cls,
        randomization: Randomization,
        name: str,
        elements: Sequence[str],
        what: str,
        components: int = 1,
    ) -> Field | None:
        """Find the elements that each name or pattern of a field means; None where the field is not given.

        Raises:
            AndanteError: a name that nothing has; `what` says of what kind it should be.
        """
        entries = []
        for entry in randomization.entries():
            if entry.field != name:
                continue
            found = [i for i, element in enumerate(elements) if fnmatchcase(element, entry.name)]
            if not found:
                names = ", ".join(dict.fromkeys(filter(None, elements))) or "none"
                raise AndanteError(f"{entry.path}: no {what} of that name; there are: {names}")
            entries.append((entry, np.array(found)))
        return cls(name, tuple(elements), components, tuple(entries)) if entries else None

    @property
    def draws(self) -> int:
        """Uniform draws that the values of one world take."""
        return sum(_count(entry, columns) for entry, columns in self.entries) * self.components

    def values(self, uniform: Floats, chosen: Mapping[str, Floats]) -> Floats:
        """Values [k, E, C] of k worlds from `draws` of each [k, draws]; `chosen` [k] by path prevail."""
        factor, whole, worlds, first = self.name in FACTORS, self.name in IN_TICKS, len(uniform), 0
        values = np.full((worlds, len(self.elements), self.components), float(factor))
        for entry, columns in self.entries:
            count = _count(entry, columns)
            own = uniform[:, first : first + count * self.components].reshape(worlds, count, self.components)
            first += count * self.components
            if entry.path in chosen:
                drawn = chosen[entry.path][:, None, None]
                drawn = np.round(drawn) if whole else drawn
            else:
                drawn = sample(entry.distribution, own, whole)
            values[:, columns] = values[:, columns] * drawn if factor else values[:, columns] + drawn
        return values

    @property
    def most(self) -> Floats:
        """Largest values [E] of a field that adds."""
        most = np.zeros(len(self.elements))
        for entry, columns in self.entries:
            most[columns] += entry.bounds[1]
        return most


def _count(entry: Entry, columns: NDArray[np.intp]) -> int:
    return 1 if getattr(entry.distribution, "shared", True) else len(columns)

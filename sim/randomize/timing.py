"""When decisions come through: what a chunk scheduler has to know of each world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..randomness import Draws
from ..spec.randomization import TIMING, Randomization
from .draw import Field, Floats


class Fates(NamedTuple):
    """What happens to decisions of B worlds that would be made now."""

    dropped: Tensor
    """The decision is lost, bool [B]."""
    starved: Tensor
    """From now on all decisions are lost for so many ticks, int64 [B]; 0 where they are not."""


class Timing:
    """Owns, for each of B worlds, how its decisions are timed in its episode."""

    fields: dict[str, Field]

    def __init__(self, randomization: Randomization, num_worlds: int, device: torch.device):
        """All decisions come through at once, until `restart`."""
        found = {name: Field.of(randomization, name, [""], "value") for name in TIMING}
        self.fields = {name: field for name, field in found.items() if field is not None}
        self._values = {name: torch.zeros(num_worlds, dtype=torch.float64, device=device) for name in TIMING}

    def restart(self, worlds: Tensor, values: Mapping[str, Floats]) -> None:
        """Begin an episode in `worlds` [k] with the fields' values [k, 1, 1]."""
        for name in self.fields:
            drawn = torch.from_numpy(values[name][:, 0, 0])
            self._values[name][worlds] = drawn.to(self._values[name].device)

    @property
    def inference_delay(self) -> Tensor:
        """d, int64 [B]."""
        return self._values["inference_delay"].long()

    @property
    def execution_horizon(self) -> Tensor | None:
        """s, int64 [B]; None where it is the policy's own."""
        if "execution_horizon" not in self.fields:
            return None
        return self._values["execution_horizon"].long()

    def fates(self, draws: Draws) -> Fates:
        """Of decisions at the moment of `draws`."""
        drop, starve = draws.uniform("decision", 2).unbind(1)
        begins = starve < self._values["starvation"]
        return Fates(
            dropped=drop < self._values["dropped_decisions"],
            starved=begins * self._values["starvation_ticks"].long(),
        )

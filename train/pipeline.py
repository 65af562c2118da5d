"""From raw sources to features, and from the network's numbers to joint targets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from andante.sim.spec.task import Feature, TaskSpec


class Features(nn.Module):
    """The columns that a task's `features` declare: scaled identities, then sines, then cosines."""

    direct: Tensor
    scale: Tensor
    angles: Tensor

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        self.sources = tuple(source.name for source in spec.sources)
        columns = [(source.name, joint) for source in spec.sources for joint in source.joints]
        direct = [feature for feature in spec.features if feature.transform == "identity"]
        angles = [feature for feature in spec.features if feature.transform == "sin_cos"]
        self.size = len(direct) + 2 * len(angles)

        def column_indices(features: list[Feature]) -> Tensor:
            return torch.tensor([columns.index((f.source, f.joint)) for f in features], dtype=torch.int64)

        self.register_buffer("direct", column_indices(direct), persistent=False)
        self.register_buffer("scale", torch.tensor([f.scale for f in direct]), persistent=False)
        self.register_buffer("angles", column_indices(angles), persistent=False)

    def forward(self, sources: dict[str, Tensor]) -> Tensor:
        """Sources {name: [..., n]} in SI units -> features [..., size]."""
        raw = torch.cat([sources[name] for name in self.sources], -1)
        angles = raw.index_select(-1, self.angles)
        return torch.cat([raw.index_select(-1, self.direct) * self.scale, angles.sin(), angles.cos()], -1)


class ActionDecoder(nn.Module):
    """Action u in units of half the trained range around its middle -> SI, clamped to the range."""

    low: Tensor
    high: Tensor
    offset: Tensor
    scale: Tensor

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        low = torch.tensor([value for term in spec.actions for value in term.low])
        high = torch.tensor([value for term in spec.actions for value in term.high])
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("offset", (low + high) / 2, persistent=False)
        self.register_buffer("scale", (high - low) / 2, persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        """u [..., A] -> SI actions [..., A]."""
        return torch.clamp(self.offset + self.scale * u, self.low, self.high)

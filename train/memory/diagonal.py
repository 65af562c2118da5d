"""Linear recurrence of decaying oscillations, the state of `lru` and `ffm`."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec
from .scan import linear_scan

LARGEST_MODULUS = 0.9999


class DiagonalRecurrence(nn.Module):
    """s' = lambda * s + b for N complex numbers, packed as 2N reals [re | im].

    lambda = 0.9999 exp(-exp(nu) + i phase), the form of arXiv 2303.06349 with a bound below 1. Steps use real
    arithmetic: torch's exporters know no complex numbers.

    Args:
        modulus: initial |lambda|, between 0 and 0.9999, both excluded.
        phase: initial angles; the shape of lambda is the broadcast one, flattened to N.
    """

    folded: Tensor | None

    def __init__(self, modulus: Tensor, phase: Tensor) -> None:
        super().__init__()
        self.nu = nn.Parameter((-(modulus / LARGEST_MODULUS).log()).log())
        self.phase = nn.Parameter(phase)
        self.size = (modulus + phase).numel()
        """N."""
        self.register_buffer("folded", None, persistent=False)

    def eigenvalues(self) -> Tensor:
        """Real and imaginary parts of lambda [2, N]; taken in double precision."""
        if self.folded is not None:
            return self.folded
        nu, phase = self.nu.double(), self.phase.double()
        modulus = LARGEST_MODULUS * (-nu.exp()).exp()
        parts = torch.stack([(modulus * phase.cos()).flatten(), (modulus * phase.sin()).flatten()])
        return parts.to(self.nu.dtype)

    def step(self, b: Tensor, s: Tensor) -> Tensor:
        """b, s [B, 2N] -> s' [B, 2N]."""
        real, imaginary = self.eigenvalues().unbind()
        s_real, s_imaginary = s.chunk(2, -1)
        rotated = (
            real * s_real - imaginary * s_imaginary,
            real * s_imaginary + imaginary * s_real,
        )
        return torch.cat(rotated, -1) + b

    def scan(self, b: Tensor, reset: Tensor, valid: Tensor, s0: Tensor) -> Tensor:
        """b [T, B, 2N], bool reset and valid [T, B], s0 [B, 2N] -> all states [T, B, 2N]; resets to 0."""
        b = _complex(b)
        eigenvalues = torch.complex(*self.eigenvalues().unbind())
        s = linear_scan(eigenvalues.expand_as(b), b, reset, valid, _complex(s0))
        return torch.cat([s.real, s.imag], -1)

    def freeze(self) -> None:
        """Fold lambda into a constant, until the next call of `train`."""
        self.folded = self.eigenvalues().detach()

    def train(self, mode: bool = True) -> Self:
        """As in torch; training mode drops what `freeze` folded."""
        if mode:
            self.folded = None
        return super().train(mode)


class DiagonalCell(MemoryCell):
    """A cell around one `DiagonalRecurrence`: what drives it, and how it is read, are all that differs."""

    recurrence: DiagonalRecurrence

    def drive(self, x: Tensor) -> Tensor:
        """Inputs [..., F] -> what is added to the state [..., S]."""
        raise NotImplementedError

    def read(self, x: Tensor, h: Tensor) -> Tensor:
        """Inputs [..., F] and the new state [..., S] -> output [..., Y]."""
        raise NotImplementedError

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The real and the imaginary parts."""
        size = self.recurrence.size
        return tuple(StateSpec(name, size, (0.0,) * size) for name in ("re", "im"))

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision."""
        h = self.recurrence.step(self.drive(x), h)
        return self.read(x, h), h

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop; all but the recurrence itself is done for all decisions at once."""
        h = self.recurrence.scan(self.drive(x), reset, valid, h0)
        return self.read(x, h), h[-1]

    def freeze(self) -> None:
        """Fold lambda."""
        self.recurrence.freeze()


def _complex(packed: Tensor) -> Tensor:
    return torch.complex(*packed.chunk(2, -1))

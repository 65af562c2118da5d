"""Chunk decoders: from the memory's output to the means of a chunk."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from andante.runtime.errors import AndanteError

from .memory import Gru


class ChunkDecoder(nn.Module):
    """A network that chooses F actions per decision, of which a chunk of H is made.

    Sizes: Y the memory's output, A actions; F = H unless a decoder ties the actions of a chunk.
    """

    ties = False
    """One action is chosen per decision, F = 1, and all of the chunk follows from it."""
    starts_from_last = False
    """The chunk also depends on the last action of the chunk before."""

    def __init__(self, chunk_size: int) -> None:
        super().__init__()
        self.chunk_size = chunk_size

    def forward(self, y: Tensor) -> Tensor:
        """y [..., Y] -> means [..., F, A]."""
        raise NotImplementedError

    def complete(self, chosen: Tensor, last: Tensor) -> Tensor:
        """Chosen actions [..., F, A] and the last one before [..., A] -> chunk [..., H, A]."""
        return chosen


class MlpDecoder(ChunkDecoder):
    """All H actions at once from one hidden layer; starts near zero, the middle of the action range."""

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int, action_size: int) -> None:
        super().__init__(chunk_size)
        self.chunk_shape = (1 if self.ties else chunk_size, action_size)
        self.hidden = nn.Linear(input_size, hidden_size)
        self.means = near_zero(nn.Linear(hidden_size, math.prod(self.chunk_shape)))

    def forward(self, y: Tensor) -> Tensor:
        """y [..., Y] -> means [..., F, A]."""
        means: Tensor = self.means(nn.functional.elu(self.hidden(y)))
        return means.reshape(*y.shape[:-1], *self.chunk_shape)


class HoldDecoder(MlpDecoder):
    """One action for the whole chunk: action repeat, a baseline of chunks."""

    ties = True

    def complete(self, chosen: Tensor, last: Tensor) -> Tensor:
        """The same action H times."""
        return chosen.expand(*chosen.shape[:-2], self.chunk_size, -1)


class InterpolateDecoder(MlpDecoder):
    """Straight from the last action to one that is reached at the end of the chunk.

    A policy at a low rate with linear interpolation between its targets, a baseline of chunks.
    """

    ties = True
    starts_from_last = True

    def complete(self, chosen: Tensor, last: Tensor) -> Tensor:
        """Tick i is (i + 1) / H of the way."""
        share = torch.arange(1, self.chunk_size + 1, dtype=last.dtype, device=last.device) / self.chunk_size
        return torch.lerp(last.unsqueeze(-2), chosen, share.unsqueeze(-1))


class GruDecoder(ChunkDecoder):
    """One action after the other: a gated recurrent unit whose input is its previous action.

    h = tanh(W y) to begin with, then H times h = GRU(u, h), u = V h + c, from u = 0. This state h is the
    decoder's own, made anew at every decision. The sequence actor of arXiv 2410.08979; starts near zero.
    """

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int, action_size: int) -> None:
        super().__init__(chunk_size)
        self.start = nn.Linear(input_size, hidden_size)
        self.gru = Gru(action_size, hidden_size)
        self.means = near_zero(nn.Linear(hidden_size, action_size))

    def forward(self, y: Tensor) -> Tensor:
        """y [..., Y] -> means [..., H, A]."""
        h_dec = torch.tanh(self.start(y))
        mean, means = y.new_zeros(*y.shape[:-1], self.gru.input_size), []
        for _ in range(self.chunk_size):
            _, h_dec = self.gru.step(mean, h_dec)
            mean = self.means(h_dec)
            means.append(mean)
        return torch.stack(means, -2)


def near_zero(layer: nn.Linear) -> nn.Linear:
    """With weights a hundredth of what they were and no bias, in place."""
    with torch.no_grad():
        layer.weight.mul_(0.01)
        layer.bias.zero_()
    return layer


DECODERS = {"mlp": MlpDecoder, "gru": GruDecoder, "hold": HoldDecoder, "interpolate": InterpolateDecoder}


def make_decoder(
    name: str, input_size: int, hidden_size: int, chunk_size: int, action_size: int
) -> ChunkDecoder:
    """Build the chunk decoder called `name`.

    Raises:
        AndanteError: no such decoder; the message lists the names.
    """
    if name not in DECODERS:
        raise AndanteError(f"no chunk decoder {name!r}; decoders: {', '.join(DECODERS)}")
    return DECODERS[name](input_size, hidden_size, chunk_size, action_size)

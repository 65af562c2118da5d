"""Chunk decoders: from the memory's output to the means of a chunk."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from andante.runtime.errors import AndanteError


class MlpDecoder(nn.Module):
    """All H actions at once from one hidden layer; starts near zero, the middle of the action range."""

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int, action_size: int) -> None:
        super().__init__()
        self.chunk_shape = (chunk_size, action_size)
        self.hidden = nn.Linear(input_size, hidden_size)
        self.means = nn.Linear(hidden_size, chunk_size * action_size)
        with torch.no_grad():
            self.means.weight.mul_(0.01)
            self.means.bias.zero_()

    def forward(self, y: Tensor) -> Tensor:
        """y [..., Y] -> means [..., H, A]."""
        means: Tensor = self.means(nn.functional.elu(self.hidden(y)))
        return means.reshape(*y.shape[:-1], *self.chunk_shape)


DECODERS = {"mlp": MlpDecoder}


def make_decoder(
    name: str, input_size: int, hidden_size: int, chunk_size: int, action_size: int
) -> MlpDecoder:
    """Build the chunk decoder called `name`.

    Raises:
        AndanteError: no such decoder; the message lists the names.
    """
    if name not in DECODERS:
        raise AndanteError(f"no chunk decoder {name!r}; decoders: {', '.join(DECODERS)}")
    return DECODERS[name](input_size, hidden_size, chunk_size, action_size)

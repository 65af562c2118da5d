"""Random draws that are functions of what they are for, not of who drew before.

A draw is keyed by (seed, world, episode, tick, stream): a world's future depends neither on its neighbours
nor on the number of threads, and nothing has to be stored to continue a run. The generator is Philox4x32-10
(Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); a word is an int64 lane.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(even: Any, odd: Any, key: tuple[int, int]) -> tuple[Any, Any]:
    """Philox4x32-10 of two key words and four counter words: 0 and 2 in `even` [2, ...], 1 and 3 in `odd`.

    Arrays or tensors, broadcast against each other, as is what comes out; words are int64 below 2^32.
    """
    shape = (2,) + (1,) * (even.ndim - 1)
    multipliers: Any = np.array(MULTIPLIERS).reshape(shape)
    keys: Any = _keys(*key).reshape(ROUNDS, *shape)
    if isinstance(even, Tensor):
        multipliers, keys = (torch.from_numpy(each).to(even.device) for each in (multipliers, keys))
    for r in range(ROUNDS):
        # Below 2^64: the top bit lands in the sign, and the mask undoes the sign extension of the shift.
        product = even * multipliers
        product = product.flip(0) if isinstance(product, Tensor) else product[::-1]
        even, odd = ((product >> 32) & WORD) ^ odd ^ keys[r], product & WORD
    return even, odd


@lru_cache(maxsize=16)
def _keys(first: int, second: int) -> NDArray[np.int64]:
    return np.array([[(first + r * WEYL[0]) & WORD, (second + r * WEYL[1]) & WORD] for r in range(ROUNDS)])


@dataclass(frozen=True)
class Draws:
    """The random draws of some worlds at one moment each."""

    seed: int
    world: Tensor
    """World ids [B], int64."""
    episode: Tensor
    """Episode of each world [B], int64."""
    tick: Tensor
    """Tick within the episode [B], int64."""

    def uniform(self, stream: str, size: int) -> Tensor:
        """Independent draws from [0, 1), multiples of 2^-53, float64 [B, size]; one `stream` name per use."""
        even, odd = self._words(stream, (size + 1) // 2)
        bits = torch.as_tensor((even << 21) + (odd >> 11))
        return bits.permute(1, 2, 0).flatten(1)[:, :size].double() * 2.0**-53

    def words(self, stream: str, blocks: int) -> Tensor:
        """Independent draws of 32 bits, int64 [4, B, blocks]; one `stream` name per use."""
        even, odd = (torch.as_tensor(words) for words in self._words(stream, blocks))
        return torch.stack((even, odd), 1).flatten(0, 1)

    def _words(self, stream: str, blocks: int) -> tuple[Any, Any]:
        # One counter word for stream and block: streams differ in the upper 24 bits.
        first = zlib.crc32(stream.encode()) & 0xFFFFFF00
        block = torch.arange(first, first + blocks, device=self.world.device)
        counter: Any = (self.world[:, None], self.episode[:, None], self.tick[:, None], block[None])
        key = self.seed & WORD, (self.seed >> 32) & WORD
        if self.world.device.type == "cpu":
            # Most batches are small, and numpy takes a fifth of torch's time for an operation on few numbers.
            world, episode, tick, block = (words.numpy() for words in counter)
            return philox(np.stack((world, tick)), np.stack(np.broadcast_arrays(episode, block)), key)
        world, episode, tick, block = counter
        odd = torch.stack((episode.expand(-1, blocks), block.expand(len(episode), -1)))
        return philox(torch.stack((world, tick)), odd, key)

    def normal(self, stream: str, size: int) -> Tensor:
        """Independent standard normal draws, float64 [B, size], by inversion of `uniform`."""
        normal: Tensor = torch.special.ndtri(self.uniform(stream, size).clamp(min=2.0**-54))
        return normal

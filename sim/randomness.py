"""Random draws that are functions of what they are for, not of who drew before.

A draw is keyed by (seed, world, episode, tick, stream): a world's future depends neither on its neighbours
nor on the number of threads, and nothing has to be stored to continue a run. The generator is Philox4x32-10
(Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); a word is an int64 lane.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
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

    @property
    def moment(self) -> Tensor:
        """World, episode and tick [B, 3]."""
        return torch.stack((self.world, self.episode, self.tick), 1)

    def of(self, rows: Tensor) -> Draws:
        """Those of some of the worlds."""
        return Draws(self.seed, self.world[rows], self.episode[rows], self.tick[rows])

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
        key = self.seed & WORD, (self.seed >> 32) & WORD
        if self.world.device.type == "cpu":
            # Most batches are small, and numpy takes a fifth of torch's time for an operation on few numbers.
            even, odd = (np.empty((2, len(self.world), size), np.int64) for size in (1, blocks))
            even[0, :, 0], even[1, :, 0] = self.world.numpy(), self.tick.numpy()
            odd[0], odd[1] = self.episode.numpy()[:, None], np.arange(first, first + blocks)
            return philox(even, odd, key)
        block = torch.arange(first, first + blocks, device=self.world.device)
        counter = (self.episode[:, None].expand(-1, blocks), block.expand(len(self.episode), -1))
        return philox(torch.stack((self.world, self.tick))[..., None], torch.stack(counter), key)

    def normal(self, stream: str, size: int) -> Tensor:
        """Independent standard normal draws, float64 [B, size], by inversion of `uniform`."""
        normal: Tensor = torch.special.ndtri(self.uniform(stream, size).clamp(min=2.0**-54))
        return normal


class Ahead:
    """A function of the draws at the next moment of every world that asks for it, found for many at once.

    It is the same function of the same draws, early: to draw for one world takes as long as for a hundred.
    """

    def __init__(self, function: Callable[[Draws], Tensor]):
        """`function` gives one row a world [k, size]."""
        self._function = function
        self._seed: int | None = None
        self._moment = self._values = torch.empty(0)

    def __call__(self, worlds: Tensor, now: Draws, following: Callable[[], Draws]) -> Tensor:
        """The function of `now`, the draws of rows `worlds` [k] at a moment each: [k, size].

        `following` gives those of all worlds [B], at the moments when it is going to be asked for next.
        """
        moment = now.moment
        if now.seed == self._seed and torch.equal(self._moment[worlds], moment):
            return self._values[worlds]
        values, after = self._function(now), following()
        moment = after.moment
        if now.seed != self._seed:
            self._seed, self._moment = now.seed, torch.full_like(moment, -1)
            self._values = values.new_zeros(len(moment), values.shape[1])
        stale = (moment != self._moment).any(1).nonzero().squeeze(1)
        self._moment[stale] = moment[stale]
        self._values[stale] = self._function(after.of(stale))
        return values

"""Random draws that are functions of what they are for, not of who drew before.

A draw is keyed by (seed, world, episode, tick, stream): a world's future depends neither on its neighbours
nor on the number of threads, and nothing has to be stored to continue a run. The generator is Philox4x32-10
(Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); a word is an int64 lane.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(counter: Tensor, key: tuple[int, int]) -> Tensor:
    """Philox4x32-10: counter [..., 4] and two key words -> random [..., 4]; words are int64 below 2^32."""
    multipliers = torch.tensor(MULTIPLIERS, device=counter.device)
    keys = torch.tensor(
        [[(word + r * weyl) & WORD for word, weyl in zip(key, WEYL, strict=True)] for r in range(ROUNDS)],
        device=counter.device,
    )
    even, odd = counter[..., 0::2], counter[..., 1::2]
    for r in range(ROUNDS):
        # Below 2^64: the top bit lands in the sign, and the mask undoes the sign extension of the shift.
        product = even * multipliers
        even, odd = ((product >> 32) & WORD).flip(-1) ^ odd ^ keys[r], (product & WORD).flip(-1)
    return torch.stack((even, odd), -1).flatten(-2)


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
        blocks = (size + 1) // 2
        counter = torch.empty(len(self.world), blocks, 4, dtype=torch.int64, device=self.world.device)
        counter[..., 0] = self.world[:, None]
        counter[..., 1] = self.episode[:, None]
        counter[..., 2] = self.tick[:, None]
        # One counter word for stream and block: streams differ in the upper 24 bits.
        counter[..., 3] = (zlib.crc32(stream.encode()) & 0xFFFFFF00) + torch.arange(blocks)
        words = philox(counter, (self.seed & WORD, (self.seed >> 32) & WORD)).view(-1, 2 * blocks, 2)
        bits: Tensor = (words[..., 0] << 21) + (words[..., 1] >> 11)
        return bits[:, :size].double() * 2.0**-53

    def normal(self, stream: str, size: int) -> Tensor:
        """Independent standard normal draws, float64 [B, size], by inversion of `uniform`."""
        normal: Tensor = torch.special.ndtri(self.uniform(stream, size).clamp(min=2.0**-54))
        return normal

"""Actions by tick: which one, if any, belongs to the tick that is executed now."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class ChunkBuffer:
    """Holds the action of every tick that accepted chunks cover.

    Action i of the chunk decided at tick t belongs to tick t + i and to no other. A newer chunk replaces the
    older one from the tick where it starts to act; without a newer one the older plays its tail to its end.
    """

    epoch: int
    """Rises with every reset; chunks asked for in an older epoch are refused."""

    def __init__(self, chunk_size: int, action_size: int, delay: int = 0, max_delay: int = 0) -> None:
        """An empty buffer, in epoch 0.

        Args:
            chunk_size: H.
            action_size: A.
            delay: d, ticks from a decision until its chunk acts.
            max_delay: largest trained d; a chunk that comes later is refused.
        """
        self.epoch = 0
        self._size = chunk_size
        self._delay = delay
        self._max_delay = max_delay
        # Live ticks span at most H, so `tick % H` never names two of them.
        self._actions = np.zeros((chunk_size, action_size), np.float32)
        self._ticks = [-1] * chunk_size
        self._newest = -1

    def put(self, chunk: NDArray[np.float32], tick: int, epoch: int, now: int) -> bool:
        """Take a chunk `[H, A]` decided at `tick` in `epoch`, which arrives at tick `now`.

        Returns:
            Whether it is accepted: of this epoch, not late, and newer than every accepted one.
        """
        if epoch != self.epoch or not tick <= now <= tick + self._max_delay or tick <= self._newest:
            return False
        self._newest = tick
        for due in range(max(now, tick + self._delay), tick + self._size):
            slot = due % self._size
            self._actions[slot] = chunk[due - tick]
            self._ticks[slot] = due
        return True

    def action_at(self, tick: int) -> NDArray[np.float32] | None:
        """The action `[A]` of this tick, as a view; None when no chunk covers it."""
        slot = tick % self._size
        return self._actions[slot] if self._ticks[slot] == tick else None

    def reset(self) -> None:
        """Forget all actions and start a new epoch."""
        self.epoch += 1
        self._newest = -1
        for slot in range(self._size):
            self._ticks[slot] = -1

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

    def __init__(self, chunk_size: int, action_size: int, max_delay: int = 0, overlap: int = 0) -> None:
        """An empty buffer, in epoch 0.

        Args:
            chunk_size: H.
            action_size: A.
            max_delay: largest trained d; a chunk that comes later is refused.
            overlap: ticks over which a new chunk takes over from the older one's tail, linearly.
        """
        self.epoch = 0
        self._size = chunk_size
        self._max_delay = max_delay
        self._shares = [(i + 1) / (overlap + 1) for i in range(overlap)]
        # The newest chunk, and the one before it, whose tail plays until the newest acts.
        self._chunks = np.zeros((2, chunk_size, action_size), np.float32)
        self._rows: list[list[NDArray[np.float32]]] = [list(chunk) for chunk in self._chunks]
        self._mix = np.zeros(action_size, np.float32)
        self._turn = 0
        self._newest = self._first = self._end = self._tail_begin = self._tail_end = -1

    def put(self, chunk: NDArray[np.float32], tick: int, epoch: int, now: int, delay: int = 0) -> bool:
        """Take a chunk `[H, A]` decided at `tick` in `epoch`, which arrives at `now` and acts after `delay`.

        Returns:
            Whether it is accepted: of this epoch, not late, and newer than every accepted one.
        """
        if epoch != self.epoch or not tick <= now <= tick + self._max_delay or tick <= self._newest:
            return False
        # With d <= s the chunk before has begun to act by now, and what is older still is over.
        self._tail_begin, self._tail_end = self._newest, self._end
        self._turn = 1 - self._turn
        self._chunks[self._turn] = chunk
        self._newest, self._first, self._end = tick, max(now, tick + delay), tick + self._size
        for due, share in enumerate(self._shares, self._first):
            if due < self._tail_end:
                row = self._rows[self._turn][due - tick]
                old = self._rows[1 - self._turn][due - self._tail_begin]
                np.subtract(row, old, out=self._mix)
                np.multiply(self._mix, share, out=self._mix)
                np.add(old, self._mix, out=row)
        return True

    def action_at(self, tick: int) -> NDArray[np.float32] | None:
        """The action `[A]` of this tick, as a view; None when no chunk covers it. Ticks must not go back."""
        if self._first <= tick < self._end:
            return self._rows[self._turn][tick - self._newest]
        if tick < self._first and tick < self._tail_end:
            return self._rows[1 - self._turn][tick - self._tail_begin]
        return None

    def reset(self) -> None:
        """Forget all actions and start a new epoch."""
        self.epoch += 1
        self._newest = self._first = self._end = self._tail_begin = self._tail_end = -1

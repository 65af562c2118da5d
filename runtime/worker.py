"""Where decisions are made: a mailbox between the controller and the policy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .policy import PolicySession


@dataclass
class Answer:
    """One decision."""

    tick: int
    """Tick whose sources were read."""
    epoch: int
    """Epoch of the request."""
    chunk: NDArray[np.float32]
    """`[H, A]`, SI units; a view, valid until the next request."""
    finite: bool
    """Whether the chunk and the next memory are finite."""


class Worker(Protocol):
    """Answers one request at a time. It never advances the memory: the controller does."""

    inference_ns: int
    """Duration of the last inference."""

    def request(self, tick: int, epoch: int) -> None:
        """Decide on the policy's inputs as they are now."""
        ...

    def poll(self) -> Answer | None:
        """The answer, once, when it is there."""
        ...


class SynchronousWorker:
    """Decides within the request: the answer is there in the same tick."""

    inference_ns: int

    def __init__(self, policy: PolicySession) -> None:
        self.inference_ns = 0
        self._policy = policy
        self._answer = Answer(-1, -1, np.zeros((0, 0), np.float32), True)
        self._answered = False

    def request(self, tick: int, epoch: int) -> None:
        """Decide on the policy's inputs as they are now."""
        start = time.perf_counter_ns()
        self._answer.chunk = self._policy.infer()
        self.inference_ns = time.perf_counter_ns() - start
        self._answer.tick = tick
        self._answer.epoch = epoch
        self._answer.finite = self._policy.finite
        self._answered = True

    def poll(self) -> Answer | None:
        """The answer to the last request, once."""
        answered, self._answered = self._answered, False
        return self._answer if answered else None

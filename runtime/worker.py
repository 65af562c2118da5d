"""Where decisions are made: a mailbox of one between the controller and the policy."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

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
    error: str | None = None
    """What the policy raised, or that chunk or next memory are not finite: then they are of no use."""


class Worker:
    """Decides within the request: with a delay of d ticks, the answer is taken at exactly the d-th tick.

    It never advances the memory: the controller does, after `poll`.
    """

    immediate: bool = True
    """Whether a request is answered within its tick."""
    inference_ns: int
    """Duration of the last inference."""
    inferences: int
    """How many there have been."""
    thread_id: int | None = None
    """Of a thread of its own, for the operating system."""

    def __init__(self, policy: PolicySession) -> None:
        self.inference_ns = self.inferences = 0
        self._policy = policy
        self._answer = Answer(-1, -1, np.zeros((0, 0), np.float32))
        self._pending = self._done = False

    @property
    def ready(self) -> bool:
        """Whether nothing is waited for; for a worker that answers at once, always."""
        return self.immediate or self._done or not self._pending

    @property
    def idle(self) -> bool:
        """Whether no inference is going on."""
        return self._done or not self._pending

    def request(self, tick: int, epoch: int) -> None:
        """Decide on the policy's inputs as they are now.

        Raises:
            RuntimeError: the answer before has not been taken.
        """
        if self._pending:
            raise RuntimeError("a request while another one is in flight")
        self._answer.tick, self._answer.epoch = tick, epoch
        self._pending = True
        self._begin()

    def poll(self) -> Answer | None:
        """The answer, once, when it is there."""
        if not self._done:
            return None
        self._done = self._pending = False
        return self._answer

    def close(self) -> None:
        """End what it holds: nothing, where it decides within the request. No request may follow."""

    def _begin(self) -> None:
        answer, start = self._answer, time.perf_counter_ns()
        try:
            answer.chunk = self._policy.infer()
            answer.error = None if self._policy.finite else "the policy's chunk or memory is not finite"
        except Exception as error:  # onnxruntime's own types; the robot must be told something all the same
            answer.error = " ".join(f"the policy failed: {error!r}".split())
        self.inference_ns = time.perf_counter_ns() - start
        self.inferences += 1
        self._done = True


class AsynchronousWorker(Worker):
    """Decides in a thread of its own while the current chunk plays; nobody may touch the policy meanwhile."""

    immediate = False
    """Answers come at later ticks."""

    def __init__(self, policy: PolicySession) -> None:
        super().__init__(policy)
        # A plain lock as a signal: `threading.Event` allocates and takes several times as long.
        self._asked = threading.Lock()
        self._asked.acquire()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)
        self._thread.start()
        self.thread_id = self._thread.native_id

    def close(self) -> None:
        """Have the thread end, after the inference that may be going on; returns at once."""
        closed, self._closed = self._closed, True
        if self.idle and not closed:
            self._asked.release()

    def _begin(self) -> None:
        self._asked.release()

    def _serve(self) -> None:
        while not self._closed:
            self._asked.acquire()
            if not self._closed:
                super()._begin()

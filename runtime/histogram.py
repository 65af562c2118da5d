"""Durations, counted without allocating."""

from __future__ import annotations

import numpy as np

from .contract import Record

BIN_NS = 1_000
"""Width of a bin."""
BINS = 100_000
"""How many there are; what is longer goes into the last."""


class Quantiles(Record, frozen=True):
    """Of durations, in microseconds."""

    p50: float
    """Median."""
    p99: float
    """99th percentile."""
    max: float
    """Largest."""

    def __str__(self) -> str:
        return f"p50 {self.p50:.0f}, p99 {self.p99:.0f}, max {self.max:.0f} us"


class Histogram:
    """Bins of one microsecond up to 0.1 s; the maximum is exact."""

    def __init__(self) -> None:
        self._counts = np.zeros(BINS, np.int64)
        self._max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        self._counts[min(max(duration_ns, 0) // BIN_NS, BINS - 1)] += 1
        self._max_ns = max(self._max_ns, duration_ns)

    def quantiles(self) -> Quantiles:
        """Median and 99th percentile (rounded up to a bin), and maximum; zeros when nothing was counted."""
        return Quantiles(p50=self._quantile_us(0.5), p99=self._quantile_us(0.99), max=self._max_ns * 1e-3)

    def _quantile_us(self, fraction: float) -> float:
        cumulated = np.cumsum(self._counts)
        at = int(np.searchsorted(cumulated, fraction * cumulated[-1]))
        return (self._max_ns if at >= BINS - 1 else min((at + 1) * BIN_NS, self._max_ns)) * 1e-3

"""The task `hexapod-velocity`."""

from __future__ import annotations

from ..spec.describe import describe
from ..spec.hexapod import FLAT, HEXAPOD
from .legged import velocity_task

__doc__ = f"{__doc__}\n\n{describe(FLAT)}"

TASK = velocity_task(FLAT, HEXAPOD)

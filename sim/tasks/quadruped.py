"""The tasks `quadruped-velocity` and `quadruped-velocity-rough`."""

from __future__ import annotations

from ..spec.describe import describe
from ..spec.quadruped import FLAT, QUADRUPED, ROUGH, ROUGH_GROUND
from .legged import velocity_task

__doc__ = f"{__doc__}\n\n{describe(FLAT)}\n\n{describe(ROUGH)}"

TASKS = (velocity_task(FLAT, QUADRUPED), velocity_task(ROUGH, QUADRUPED, ROUGH_GROUND))

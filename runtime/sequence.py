"""Start and stop sequences: phases of damping and of smooth motion from the measured pose to a keyframe."""

from __future__ import annotations

from collections.abc import Iterable

from .command import Floats, JointCommand
from .profile import Profile
from .step_player import StepPlayer
from .steps import Phase


class Sequence:
    """Plays phases one tick at a time. A skipped tick delays a motion; it does not make it jump."""

    def __init__(self, phases: Iterable[Phase], profile: Profile, control_period_ns: int) -> None:
        """Resolve joints and gains; one tick lasts `control_period_ns`."""
        self._player = StepPlayer(profile, control_period_ns)
        self._phases = self._player.resolve(phases)
        self.restart()

    def restart(self) -> None:
        """Back to the first phase."""
        self._index, self._left = 0, 0.0

    @property
    def done(self) -> bool:
        """Whether every phase has been played."""
        return self._index == len(self._phases)

    def advance(self, command: JointCommand, measured: Floats) -> None:
        """Fill the command of the next tick; when `done`, one that stays where the last phase ended.

        Args:
            command: to be filled.
            measured: positions and velocities `[2, Ja]`.
        """
        if not self.done:
            if self._left == 0:
                self._left = self._player.begin(self._phases[self._index], measured)
            self._left -= 1
            self._index += self._left == 0
        self._player.fill(command, measured[0])

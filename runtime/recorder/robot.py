"""A robot that is a recording: what it once measured, whatever it is told now."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from ..command import FIELDS, NEVER_NS, JointCommand, Sample
from ..contract import Contract
from ..errors import AndanteError, ProfileError
from ..profile import Profile
from .recording import read_recording


class ReplayRobot:
    """Measures at every reading what was measured at the next recorded tick, as old as it was then.

    A message that did not arrive then does not arrive now. Commands are swallowed, so that measurements do
    not answer to them: for policies, devices and operators to be tried on real data. `andante replay` is what
    checks a recording.
    """

    name: str = "replay"
    """Under which it is registered."""
    carries: frozenset[str] = frozenset(FIELDS)
    """Everything: nothing is driven."""

    def __init__(self, contract: Contract, profile: Profile, recording: str) -> None:
        """Read a recording.

        Args:
            contract: not looked at.
            profile: of the robot; must have the recorded joints and signals.
            recording: the file; of a recording in parts, the parts with commas between them.

        Raises:
            AndanteError: not a recording, or of other joints or signals than the profile's.
        """
        found = read_recording(*map(Path, recording.split(",")))
        for what, recorded, expected in (
            ("joints", found.profile.joint_names, profile.joint_names),
            ("signals", tuple(found.profile.signals), tuple(profile.signals)),
        ):
            if recorded != expected:
                raise ProfileError(
                    f"{recording}: recorded {what} {', '.join(recorded)}; "
                    f"the profile has {', '.join(expected)}"
                )
        self.joints: tuple[str, ...] = profile.joint_names
        self._samples = found.samples()
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        self._received_ns = dict.fromkeys(profile.signals, NEVER_NS)
        self._source_ns = dict.fromkeys(profile.signals, NEVER_NS)

    def read(self) -> Sample:
        """The next recorded measurement, as if it were of now.

        Raises:
            AndanteError: there is none.
        """
        following = next(self._samples, None)
        if following is None:
            raise AndanteError("the recording is over")
        recorded, sample = following[1], self._sample
        now_ns = sample.now_ns = time.monotonic_ns()
        for signal, values in sample.values.items():
            received_ns, source_ns = recorded.received_ns[signal], recorded.source_ns[signal]
            np.copyto(values, recorded.values[signal])
            if received_ns != self._received_ns[signal]:
                arrived = received_ns != NEVER_NS
                age_ns = recorded.now_ns - received_ns
                sample.received_ns[signal] = now_ns - age_ns if arrived else NEVER_NS
            if source_ns != self._source_ns[signal]:
                sample.source_ns[signal] = now_ns - (recorded.now_ns - source_ns)
            self._received_ns[signal], self._source_ns[signal] = received_ns, source_ns
        return sample

    def write(self, command: JointCommand) -> None:
        """Swallow the command."""

    def close(self) -> None:
        """Nothing is held."""

"""`andante profile check`: what is wrong between a robot's profile and a policy, all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from andante.runtime.artifact import read_artifact
from andante.runtime.profile import load_profile, mismatches
from andante.runtime.safety import find_predicates


def profile(action: Positional[Literal["check"]], robot: Positional[str], policy: Path | None = None) -> int:
    """Check a robot profile, and whether a policy fits it.

    Prints every mismatch; the exit status is 1 if there is any.

    Args:
        action: what to do.
        robot: profile file (YAML), or the name of a shipped one.
        policy: policy file to check it against.
    """
    loaded = load_profile(robot)
    find_predicates(loaded)
    print(f"{robot}: a valid profile of robot model {loaded.robot_model}, digest {loaded.digest[:12]}")
    if policy is None:
        return 0
    found = list(mismatches(read_artifact(policy).contract, loaded))
    for reason in found:
        print(f"- {reason}")
    print(f"{policy}: " + (f"{len(found)} mismatches" if found else "fits"))
    return 1 if found else 0

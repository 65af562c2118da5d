"""`andante verify`: is this file whole, and is it the policy it says it is, on this machine?"""

from __future__ import annotations

import importlib
from pathlib import Path

from tyro.conf import Positional

from andante.runtime.errors import AndanteError
from andante.runtime.policy import GOLDEN_TOLERANCE, check_golden_trace
from andante.runtime.profile import load_profile


def verify(policy: Positional[Path], run: Path | None = None, profile: Path | None = None) -> int:
    """Check a policy file's digest and golden trace; exits with 1 unless all checks pass.

    Args:
        policy: The policy file.
        run: Folder of the run it was exported from: also compares the closed loop in the simulator with the
            run's return, over the same episodes.
        profile: Robot profile (YAML) for that loop; the shipped one of the policy's robot model when left
            out.
    """
    if profile is not None and run is None:
        raise AndanteError("--profile is for the closed loop: give the run's folder with --run, too")
    artifact, _, deviation = check_golden_trace(policy)
    trace = f"{artifact.trace}: {deviation} (at most {GOLDEN_TOLERANCE:.0e})"
    checks = [
        ("digest", True, f"sha256 {artifact.digest}"),
        ("golden trace", deviation.within(GOLDEN_TOLERANCE), trace),
    ]
    if run is not None:
        # The simulator is no part of a bare installation: it is asked for by name, and only here.
        check_closed_loop = importlib.import_module("andante.sim.verify").check_closed_loop
        check = check_closed_loop(artifact, run, None if profile is None else load_profile(profile))
        checks += [
            ("closed loop", check.acceptable, str(check)),
            *(("", False, each) for each in check.faults),
        ]
    print(policy)
    for name, passed, text in checks:
        print(f"  {name:<14}{'ok' if passed else 'FAILED':<8}{text}")
    return 0 if all(passed for _, passed, _ in checks) else 1

"""`andante verify`: is this file whole, and is it the policy it says it is, on this machine?"""

from __future__ import annotations

import importlib
from pathlib import Path

from tyro.conf import Positional

from ..policy import GOLDEN_TOLERANCE, check_golden_trace


def verify(policy: Positional[Path], run: Path | None = None) -> int:
    """Check a policy file's digest and golden trace; exits with 1 unless all checks pass.

    Args:
        policy: The policy file.
        run: Folder of the run it was exported from: also compares the closed loop in the simulator with the
            run's return, over the same episodes.
    """
    artifact, _, deviation = check_golden_trace(policy)
    reproduced = deviation.within(GOLDEN_TOLERANCE)
    print(f"{policy}")
    _line("digest", True, f"sha256 {artifact.digest}")
    replayed = f"{artifact.trace}: {deviation} (at most {GOLDEN_TOLERANCE:.0e})"
    _line("golden trace", reproduced, replayed)
    if run is None:
        return 0 if reproduced else 1
    # The simulator is above this room: it is asked for by name, and only here.
    simulated = importlib.import_module("andante.sim.verify")
    check = simulated.check_closed_loop(artifact, run)
    trained, random, count = check.result.trained, check.result.random_return, check.result.episodes
    returns = f"return {check.measured:.3f}, the run's {trained:.3f}, random {random:.3f}, {count} episodes"
    apart = f"{check.deviation:.2%} apart (at most {simulated.RETURN_TOLERANCE:.0%})"
    _line("closed loop", check.acceptable, f"{returns}: {apart}")
    for fault in check.faults:
        _line("", False, fault)
    return 0 if reproduced and check.acceptable else 1


def _line(name: str, passed: bool, text: str) -> None:
    print(f"  {name:<14}{'ok' if passed else 'FAILED':<8}{text}")

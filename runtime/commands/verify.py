"""`andante verify`: is this file whole, and is it the policy it says it is, on this machine?"""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from ..policy import GOLDEN_TOLERANCE
from ..verify import RETURN_TOLERANCE, check_closed_loop, check_golden_trace


def verify(policy: Positional[Path], run: Path | None = None) -> int:
    """Check a policy file's digest and golden trace; exits with 1 unless all checks pass.

    Args:
        policy: The policy file.
        run: Folder of the run it was exported from: also compares the closed loop in the simulator with the
            run's return, over the same episodes.
    """
    artifact, deviation = check_golden_trace(policy)
    trace = artifact.trace
    reproduced = deviation.within(GOLDEN_TOLERANCE)
    print(f"{policy}")
    _line("digest", True, f"sha256 {artifact.digest}")
    _line(
        "golden trace",
        reproduced,
        f"{len(trace.reset)} decisions, {int(trace.reset.sum())} resets: "
        f"actions of up to {deviation.action_scale:.3g} within {deviation.action:.1e}, "
        f"states within {deviation.state:.1e} of the largest (at most {GOLDEN_TOLERANCE:.0e})",
    )
    if run is None:
        return 0 if reproduced else 1
    check = check_closed_loop(artifact, run)
    result = check.result
    _line(
        "closed loop",
        check.acceptable,
        f"return {check.measured:.3f}, the run's {result.trained:.3f}, random {result.random_return:.3f}, "
        f"{result.episodes} episodes: {check.deviation:.2%} apart (at most {RETURN_TOLERANCE:.0%})",
    )
    for fault in check.faults:
        _line("", False, fault)
    return 0 if reproduced and check.acceptable else 1


def _line(name: str, passed: bool, text: str) -> None:
    print(f"  {name:<14}{'ok' if passed else 'FAILED':<8}{text}")

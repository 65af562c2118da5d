"""What the policy node tells on /diagnostics."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from .control import ControlThread


def describe(name: str, control: ControlThread) -> DiagnosticStatus:
    """State, fault, and since activation: counters and jitter."""
    controller, robot = control.controller, control.robot
    counters, jitter = controller.counters, control.clock.jitter.quantiles()
    values = {
        "state": controller.state.value,
        "fault": controller.fault or "none",
        "refused message": robot.refused or "none",
        "ticks": counters.ticks,
        "missed": counters.skipped,
        "decisions": counters.decisions,
        "dropped": counters.dropped,
        "starved": counters.starved,
        "saturations": counters.saturations,
        "jitter p50 us": round(jitter.p50),
        "jitter p99 us": round(jitter.p99),
        "jitter max us": round(jitter.max),
    }
    if controller.fault is not None or control.error is not None:
        level = DiagnosticStatus.ERROR
    elif robot.refused is not None:
        level = DiagnosticStatus.WARN
    else:
        level = DiagnosticStatus.OK
    return DiagnosticStatus(
        level=level,
        name=f"{name}: controller",
        message=controller.fault or controller.state.value,
        hardware_id=controller.contract.robot_model,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )

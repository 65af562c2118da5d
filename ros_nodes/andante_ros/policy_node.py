"""`policy_node`: a lifecycle node that runs a policy file on a robot's joint topics."""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from andante.runtime import AndanteError, Controller, LoopReport, load_policy, load_profile
from andante.runtime.recorder.options import RecordingOptions

from . import params
from .control import ControlThread
from .diagnostics import describe
from .process import run_node
from .topics import TopicRobot
from .urgent import Answer, UrgentService

if TYPE_CHECKING:
    from andante.runtime.recorder.recorder import Recorder

WATCH_S = 0.1
"""How often changes are looked for."""
WATCHES_PER_MESSAGE = 10
"""Diagnostics are published once a second where nothing changes."""


class _Seen(NamedTuple):
    """What is logged when it changes."""

    state: str = "DISABLED"
    fault: str | None = None
    refused: str | None = None
    error: str | None = None
    report: LoopReport | None = None


class PolicyNode(LifecycleNode):
    """Configured: policy and profile are loaded, and fit. Active: the policy may move the robot.

    Activation begins the start sequence. `~/start` confirms where the profile asks for it, and begins anew
    after `~/stop` or `~/clear_fault`. Every beginning is from the policy's initial memory.
    """

    _urgent: UrgentService | None = None

    def __init__(self) -> None:
        super().__init__("policy_node")
        params.declare(self, params.POLICY_NODE)
        self._control: ControlThread | None = None
        self._recorder: Recorder | None = None
        self._active = False
        self._seen = _Seen()
        self._watches = 0
        for name, action in {
            "start": self._start,
            "stop": self._stop,
            "clear_fault": self._clear_fault,
        }.items():
            self.create_service(Trigger, f"~/{name}", self._answer(action))
        self._urgent = UrgentService(self, "emergency_stop", self._answer(self._emergency_stop))
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 1)
        self.create_timer(WATCH_S, self._watch)
        if self.get_parameter("autostart").value and (
            self.trigger_configure() is TransitionCallbackReturn.SUCCESS
        ):
            self.trigger_activate()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load policy and profile; what is wrong with them is one line in the log."""
        return self._attempt(self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin the start sequence."""
        return self._attempt(self._activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Play the stop sequence to its end; after that nothing is sent."""
        return self._attempt(self._deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let policy, profile and topics go."""
        return self._attempt(self.close)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop softly and let everything go."""
        return self._attempt(self.close)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop softly and let everything go; the node can be configured again."""
        return self._attempt(self.close)

    def destroy_node(self) -> None:
        """See rclpy."""
        # None where the node could not be made; rclpy may destroy it once more.
        if self._urgent is not None:
            self._urgent.close()
            self._urgent = None
        super().destroy_node()

    def cut_short(self) -> None:
        """Stop at once, whatever the stop sequence has left; from a signal handler, too."""
        if self._control is not None:
            self._control.emergency_stop("interrupted twice")

    def close(self) -> None:
        """Stop softly and let everything go."""
        self._deactivate()
        if self._control is not None:
            self._control.controller.close()
            self._control.robot.close()
            self._control = None
        if self._recorder is not None:
            self._recorder.close()
            if self._recorder.told is not None:
                self.get_logger().info(f"recording {self._recorder.told}")
            self._recorder = None

    def _attempt(self, transition: Callable[[], None]) -> TransitionCallbackReturn:
        # rclpy itself would drop an exception without a word.
        try:
            transition()
        except AndanteError as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        except Exception:
            self.get_logger().error(traceback.format_exc())
            return TransitionCallbackReturn.ERROR
        return TransitionCallbackReturn.SUCCESS

    def _configure(self) -> None:
        values = params.read(self, params.POLICY_NODE)
        policy = load_policy(values["policy"])
        profile = load_profile(values["profile"] or policy.contract.robot_model)
        controller = Controller(policy, profile)
        controller.check_output(TopicRobot.carries)
        priority = values["fifo_priority"] or None
        robot = TopicRobot(profile, self, values["joint_states_topic"], values["command_topic"])
        recording = RecordingOptions(record=unused(Path(values["record"])) if values["record"] else None)
        self._recorder = recording.open(controller, priority is not None)
        observers = [] if self._recorder is None else [self._recorder.add]
        self._control = ControlThread(controller, robot, priority, self._tell_ready, observers)
        self.get_logger().info(
            f"{values['policy']} (digest {policy.digest[:12]}) on robot model {profile.robot_model}: "
            f"{1e9 / policy.contract.control_period_ns:g} Hz, a decision every "
            f"{controller.planner.execution.horizon} ticks"
        )

    def _activate(self) -> None:
        self._control.start()
        self._active = True

    def _deactivate(self) -> None:
        self._active = False
        if self._control is not None:
            self._control.halt()
            self._watch()

    def _answer(self, action: Callable[[ControlThread], str]) -> Answer:
        def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                if self._control is None:
                    raise AndanteError("the node is not configured")
                response.message = action(self._control)
                response.success = True
            except AndanteError as error:
                response.message = str(error)
            return response

        return answer

    def _start(self, control: ControlThread) -> str:
        if not self._active:
            raise AndanteError("the node is not active")
        if control.running:
            control.confirm()
            return "asked to run the policy"
        control.start()
        return "the start sequence begins"

    def _stop(self, control: ControlThread) -> str:
        if not control.running:
            raise AndanteError("nothing is running")
        control.stop()
        return "the stop sequence begins"

    def _emergency_stop(self, control: ControlThread) -> str:
        if not control.running:
            raise AndanteError("nothing is running")
        control.emergency_stop("~/emergency_stop")
        return "the fallback is in force until ~/clear_fault"

    def _clear_fault(self, control: ControlThread) -> str:
        control.clear()
        return "cleared; ~/start begins anew"

    def _tell_ready(self) -> None:
        waiting = self._control.controller.waiting
        why = "" if waiting is None else f" (not started: {waiting})"
        self.get_logger().info(f"ready: ~/start runs the policy{why}")

    def _watch(self) -> None:
        """Log what has changed; publish diagnostics then, and once a second."""
        control = self._control
        if control is None:
            return
        controller = control.controller
        now = _Seen(
            controller.state.name, controller.fault, control.robot.refused, control.error, control.report
        )
        self._watches = 0 if now != self._seen else self._watches + 1
        if self._watches % WATCHES_PER_MESSAGE == 0:
            message = DiagnosticArray(status=[describe(self.get_fully_qualified_name(), control)])
            message.header.stamp = self.get_clock().now().to_msg()
            self._diagnostics.publish(message)
        before, self._seen = self._seen, now
        logger = self.get_logger()
        if now.error not in (None, before.error):
            logger.error(now.error)
        if now.fault not in (None, before.fault):
            logger.error(f"fault: {now.fault}")
        if now.refused not in (None, before.refused):
            logger.warning(f"joint state refused: {now.refused}")
        if now.state != before.state:
            logger.info(f"state {now.state}")
        if now.report not in (None, before.report):
            logger.info(f"the run is over\n{now.report}")


def unused(path: Path) -> Path:
    """The path of a recording, or the first `NAME.2.mcap` ... where neither it nor a part of it is yet."""
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    numbered = (f"{path.stem}.{number}" for number in itertools.count(2))
    for stem in itertools.chain((path.stem,), numbered):
        # Any part will do: the first ones may be gone.
        taken = re.compile(rf"{re.escape(stem)}(-\d+)?{re.escape(path.suffix)}")
        if not any(map(taken.fullmatch, names)):
            break
    return path.with_name(stem + path.suffix)


def main() -> int:
    """Run the node."""
    return run_node(PolicyNode)


if __name__ == "__main__":
    raise SystemExit(main())

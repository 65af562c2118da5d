"""One simulated episode with one fault: the real controller and loop, and the oracle beside them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import yaml
from fault_oracle import Decisions, Referee, Step, Table, Witness
from soak import Auditor

from andante.runtime.command import JointCommand, OperatorInput, Sample
from andante.runtime.controller import Controller
from andante.runtime.loop import LoopReport, RealtimeLoop
from andante.runtime.operator import command_components
from andante.runtime.policy import PolicySession
from andante.runtime.profile import load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.worker import Worker
from andante.sim.faults import KINDS, Fault, FaultyRobot
from andante.sim.robot import SimRobot
from andante.sim.spec import get_spec
from andante.sim.spec.start import Start

RUN_TICKS = 50
"""Of the policy, where nothing happens."""
HEARTBEAT_S = 0.5
"""Longest silence of an emergency-stop device where the profile names none."""
SET = ("limit", "tilt", "battery", "hot_motor")
"""Kinds of fault that set a signal to a value."""
BROUGHT = {
    "nan": "non_finite",
    "inf": "non_finite",
    "nan_command": "non_finite",
    "limit": "limit",
    "tilt": "tilt",
    "e_stop": "e_stop",
    "raise_read": "e_stop",
    "raise_write": "e_stop",
    "clock_back": "e_stop",
}
"""The event that a kind of fault brings without fail."""
ROUNDING = 1e-9


class JumpyClock(VirtualClock):
    """A virtual clock on which work takes its time, and that may go back."""

    gone_back_ns: int = 0

    def work(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def go_back(self, by_ns: int) -> None:
        self._now_ns -= by_ns
        self.gone_back_ns += by_ns

    @property
    def passed_ns(self) -> int:
        """Time since the beginning."""
        return self._now_ns + self.gone_back_ns


class LateWorker(Worker):
    """Answers a tick after it is asked, or as many later as the fault wants."""

    immediate = False
    tick = lateness = 0

    def request(self, tick: int, epoch: int) -> None:
        super().request(tick, epoch)
        self.inference_ns = 1  # whatever it took, so that episodes repeat
        self._due = tick + 1 + self.lateness

    @property
    def ready(self) -> bool:
        return self._done and self.tick >= self._due


@dataclass
class Plan:
    """One episode's fault."""

    kind: str
    signal: str | None = None
    amount: float = 0.0
    begin: int = 0
    ticks: int = 0
    blind: int = 0
    """Ticks at the beginning in which nothing is measured."""
    confirm_at: int = 0

    def active(self, kind: str, tick: int) -> bool:
        return self.kind == kind and self.begin <= tick < self.begin + self.ticks


class Robot:
    """A simulated robot under one profile, and its controller: it runs again after every fault."""

    def __init__(self, policy: PolicySession, path: Path) -> None:
        self.policy, self.path = policy, path
        self.contract = policy.contract
        self.content = yaml.safe_load(path.read_text())
        self.profile = load_profile(str(path))
        self.simulated = SimRobot(self.contract, self.profile)
        self.components = command_components(self.contract)
        self.waits = max(self.contract.inference_delay.values) > 0
        self._start = Start(self.simulated.model, get_spec(self.contract.task))
        self._controller = Controller(policy, self.profile)

    def controller(self) -> Controller:
        """Disabled; a new one where an inference may still be under way in the last one."""
        if self.waits:
            return Controller(self.policy, self.profile, worker=LateWorker(self.policy))
        return self._controller

    def restart(self, random: np.random.Generator) -> None:
        """Put it where its task may start."""
        data = self.simulated.data
        data.xfrc_applied[:] = data.qfrc_applied[:] = 0.0
        qpos, qvel = self._start(random.uniform(size=(1, self._start.draws)))
        self.simulated.set_state(qpos[0], qvel[0])

    def push(self, amount: float, direction: np.ndarray) -> None:
        """Apply a force to the base, or a torque to every joint where that is fixed."""
        model, data = self.simulated.model, self.simulated.data
        if model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE:
            data.xfrc_applied[model.jnt_bodyid[0], :2] = amount * direction
        else:
            data.qfrc_applied[:] = amount * np.sign(direction[0])


class Episode:
    """The robot, the operator and the observer of one run."""

    hint = ""

    def __init__(self, robot: Robot, plan: Plan, random: np.random.Generator) -> None:
        self._robot, self._plan = robot, plan
        self._period_ns = robot.contract.control_period_ns
        self.controller = robot.controller()
        worker = self.controller.worker
        self._worker = worker if isinstance(worker, LateWorker) else None
        table = Table(robot.content, self._period_ns * 1e-9)
        decisions = Decisions(robot.contract, robot.waits)
        self.referee = Referee(table, decisions, robot.contract.max_gap_ticks)
        self._witness = Witness(robot.content, robot.contract)
        self._clock = JumpyClock()
        robot.restart(random)
        angle = random.uniform(0.0, 2.0 * math.pi)
        self._direction = np.array([math.cos(angle), math.sin(angle)])
        blind = [Fault(kind="drop", from_tick=0, to_tick=plan.blind)] if plan.blind else []
        self._faulty = FaultyRobot(FaultyRobot(robot.simulated, blind), self._faults(), self._clock.work)
        self.name, self.joints, self.carries = "faulty", robot.simulated.joints, robot.simulated.carries
        self.states: list[str] = []
        """After every tick, says the referee."""
        self._mismatch: str | None = None
        self._tick = self._due = 0
        self._begun = self._overrun = self._e_stop = self._gone_back = False
        self._heard_ns = self._commanded_ns = self._now_ns = 0

    def run(self, counts: Counter[str]) -> str | None:
        """-> what is not as the table says; None when all is. `counts` is the auditor's."""
        infer = self._robot.policy.infer

        def sabotaged() -> np.ndarray:
            self._sabotage()
            return infer()

        auditor = Auditor(self, self._robot.profile, counts)
        self._loop = RealtimeLoop(
            self.controller,
            auditor,
            clock=self._clock,
            operator=self,
            observers=[auditor.check, self._check],
        )
        self._robot.policy.infer = sabotaged
        try:
            report = self._loop.run(RUN_TICKS * self._period_ns * 1e-9)
        finally:
            self._robot.policy.infer = infer
            self.controller.deactivate()
            self.controller.clear()
        return self._mismatch or self._verdict(report)

    def read(self) -> Sample:
        """The first thing that the loop does in a tick."""
        plan, tick = self._plan, self._tick
        self._begun = True
        if self._worker is not None:
            self._worker.tick = self._due
            self._worker.lateness = round(plan.amount) if plan.active("late_inference", tick) else 0
        self._robot.push(plan.amount if plan.active("push", tick) else 0.0, self._direction)
        if plan.kind == "clock_forward" and tick == plan.begin:
            self._clock.work(plan.amount * 1e-9)
        if plan.kind == "clock_back" and tick == plan.begin:
            self._clock.go_back(round(plan.amount))
            self._gone_back = True
        try:
            sample = self._faulty.read()
        except OSError:
            self._e_stop, self._seen = True, self._witness.judge(None)
            raise
        self._seen, self._now_ns = self._witness.judge(sample), sample.now_ns
        return sample

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """The second: what the operator wants."""
        plan, tick, seen = self._plan, self._tick, self._seen
        if not plan.active("heartbeat", tick):
            self._heard_ns = now_ns
        if not plan.active("silent_operator", tick):
            self._commanded_ns = now_ns
        operator.heartbeat_ns, operator.command_ns = self._heard_ns, self._commanded_ns
        operator.command[:] = [component.high / 2 for component in self._robot.components]
        if plan.active("nan_command", tick):
            operator.command.fill(np.nan)
            seen.events.append("non_finite")
        operator.start = tick >= plan.confirm_at
        operator.stop = plan.active("operator_stop", tick)
        operator.e_stop = "red button" if plan.active("e_stop", tick) else None
        demands = self._robot.content.get("operator") or {}
        silence_ns = self._now_ns - self._heard_ns
        silent = not 0 <= silence_ns <= demands.get("heartbeat_s", HEARTBEAT_S) * 1e9
        seen.e_stop = self._e_stop or silent or operator.e_stop is not None
        silence_ns = self._now_ns - self._commanded_ns
        seen.silent = bool(self._robot.components) and silence_ns > demands.get("link_s", math.inf) * 1e9
        seen.start = operator.start
        seen.stop = operator.stop or self._loop.stopping is not None
        seen.overrun = self._overrun

    def write(self, command: JointCommand) -> None:
        """The last."""
        try:
            self._faulty.write(command)
        except OSError:
            self._e_stop = True
            raise

    def close(self) -> None:
        """Nothing is held."""

    def _sabotage(self) -> None:
        """Before every inference, but for those that warm up."""
        plan = self._plan
        if self._begun and plan.active("slow_inference", self._tick):
            self._clock.work(plan.amount * 1e-9)
        if self._begun and plan.active("raising_inference", self._tick):
            raise ValueError("injected")
        if self._begun and plan.active("nan_inference", self._tick):
            self._robot.policy.flat_inputs.fill(np.nan)

    def _check(self, tick: int, sample: Sample, command: JointCommand, *_: int) -> None:
        """After every tick: what has the referee to say?"""
        plan, referee = self._plan, self.referee
        fails = plan.active("raising_inference", self._tick) or plan.active("nan_inference", self._tick)
        step = referee.tick(tick, self._seen, fails, 0 if self._worker is None else self._worker.lateness)
        self.states.append(referee.state)
        wrong, found = None, self.controller.state.value
        if tick != self._due:
            wrong = f"expected tick {self._due}"
        elif found != referee.state:
            wrong = f"expected state {referee.state}, found {found} ({self.controller.fault})"
        elif command.mode != ("track" if step is None else step.mode):
            wrong = f"expected {step}, found mode {command.mode}"
        elif step is not None and step.action != "external":
            wrong = self._wrong(step, command, sample)
        if wrong is not None and self._mismatch is None:
            self._mismatch = f"tick {tick}: {wrong}"
        self._e_stop |= self._gone_back
        self._tick = tick + 1
        self._due = max(self._tick, self._clock.passed_ns // self._period_ns)
        self._overrun = self._clock.passed_ns >= self._tick * self._period_ns

    def _wrong(self, step: Step, command: JointCommand, sample: Sample) -> str | None:
        """What of a command is not as the step wants it."""
        content = self._robot.content
        actuated = [joint["actuated"] for joint in content["joints"]]
        names = [joint["name"] for joint in content["joints"] if joint["actuated"]]
        gains = content["gains"][step.gains]
        kd = np.array([gains["kd"][name] for name in names])
        if content["pd_loop"] == "host":
            efforts = np.array([joint["effort"] for joint in content["joints"] if joint["actuated"]])
            torque = np.clip(-kd * sample.values["joint_velocity"][actuated], -efforts, efforts)
            blind = self._seen.blind or "non_finite" in self._seen.events
            given = command.tau_ff
            if step.action == "damping" and not (blind and not given.any()):
                return None if np.allclose(given, torque, atol=ROUNDING) else f"{given} instead of {torque}"
            return None
        kp = np.array([gains["kp"][name] for name in names]) if step.action != "damping" else 0.0 * kd
        # A torque limit scales both gains of a joint alike.
        if (command.kd > kd + ROUNDING).any() or not np.allclose(command.kd * kp, command.kp * kd):
            return f"other gains than {step.gains!r}"
        if step.action == "track" and self.referee.at_end:
            wanted = [step.pose[name] for name in names]
            return (
                None if np.allclose(command.q, wanted, atol=ROUNDING) else f"ends at another pose than {step}"
            )
        return None

    def _faults(self) -> list[Fault]:
        plan = self._plan
        kind = "set" if plan.kind in SET else plan.kind
        if kind not in KINDS:
            return []
        span = {"from_tick": plan.begin, "to_tick": plan.begin + plan.ticks}
        return [Fault(kind=kind, signal=plan.signal, amount=plan.amount, **span)]

    def _verdict(self, report: LoopReport) -> str | None:
        """What is not as it must be at the end."""
        referee, plan = self.referee, self._plan
        found = [fault.partition(":")[0] for fault in report.faults[:1]]  # what was latched
        wanted = [] if referee.reason is None else [referee.reason]
        end = "fault" if wanted else "disabled"
        if found != wanted or not report.state == referee.state == end:
            return f"expected {referee.state} for {wanted}, found {report.state} for {report.faults}"
        ran = self.states.count("run") + report.missed
        if report.stopped == "time over" and ran < RUN_TICKS and plan.kind != "operator_stop":
            return f"the policy ran for {ran} ticks only"
        brought = BROUGHT.get(plan.kind)
        came = plan.blind <= plan.begin < self._tick - 2
        if came and brought is not None and brought not in referee.events:
            return f"{plan.kind} brought {referee.events}, not {brought}"
        return None

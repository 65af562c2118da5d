"""The controller: from one sample to one joint command per tick, whatever happens."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Set
from functools import partial
from itertools import chain

import numpy as np

from .command import FIELDS, JointCommand, OperatorInput, Sample
from .contract import JOINT_KINDS, Contract
from .errors import AndanteError, ProfileError
from .fallback import FallbackPlayer
from .measurement import Measurement
from .operator import command_components
from .planner import Counters, Execution, Mode, Planner
from .policy import PolicySession
from .profile import Profile, check_fit
from .safety import find_predicates
from .sequence import Sequence
from .states import EDGES, LIVE, Reset, State
from .steps import EVENTS, Brake, Hold, Track
from .worker import Worker

OVERRUN = "work ended after the next deadline, or a tick was missed"
"""The reason of that event."""
HEARTBEAT_S = 0.5
"""Longest silence of an emergency-stop device where the profile demands none, but there is one."""
SWAP_TICKS = 5
"""Over so many ticks the commands of a new policy take over from the last one of the old."""


class Controller:
    """Runs a policy on a robot: `warmup`, `activate`, then `tick` until it is `DISABLED` again.

    Deterministic: the same samples at the same ticks give the same commands, bit by bit. Nothing sleeps,
    waits or does I/O, and after `warmup` no array is allocated while the policy runs. Everything belongs to
    the ticking thread; what the operator wants is in the samples.
    """

    fault: str | None
    """Event and reason of the latched fault."""
    fell: tuple[State, int]
    """State and tick in which it came."""
    waiting: str | None
    """In `WAIT_SENSORS` and `READY`: for what, but for the operator's confirmation."""

    def __init__(
        self,
        policy: PolicySession,
        profile: Profile,
        execution_horizon: int | None = None,
        worker: Worker | None = None,
        inference_delay: int | None = None,
        mode: Mode | None = None,
        overlap: int | None = None,
    ) -> None:
        """Join a policy and a robot.

        Args:
            policy: owned by this controller from now on; nobody else may use it.
            profile: the robot.
            execution_horizon: s, one of the trained values; the contract's default when None.
            worker: decides with `policy`, and is owned by this controller too; within the tick when None.
            inference_delay: d to begin with, one of the trained values; the contract's default when None.
            mode: how chunks are executed, see `Execution`; what the policy was trained for when None.
            overlap: ticks over which a new chunk takes over in mode `blend`.

        Raises:
            ProfileError: policy and profile do not fit, or a safety predicate is unknown.
            AndanteError: the policy was not trained to be executed that way, or for such a worker.
        """
        contract = policy.contract
        check_fit(contract, profile)
        worker = worker or Worker(policy)
        self._horizon = execution_horizon
        self._resolve = partial(Execution.resolve, delay=inference_delay, mode=mode, overlap=overlap)
        execution = self._resolve(contract, execution_horizon, waits=not worker.immediate)
        period_ns = contract.control_period_ns
        self.profile = profile
        self.state = State.DISABLED
        self.fault = self.waiting = None
        self.fell = self.state, 0
        self._measured = Measurement(contract, profile)
        self._predicates = find_predicates(profile)
        self._start_sequence = Sequence(profile.start, profile, period_ns)
        self._stop_sequence = Sequence(profile.stop, profile, period_ns)
        self._fallback = FallbackPlayer(profile, period_ns)
        self._command = JointCommand.allocate(len(profile.actuated), _validity_ns(contract))
        self._before = self._command.copy()
        self._damping = profile.kd("damping")
        self._settling = round((profile.settle_s or 0.0) * 1e9 / period_ns)
        self._stop_tick: int | None = None
        operator = profile.operator
        self._heartbeat_ns = round((operator.heartbeat_s or HEARTBEAT_S) * 1e9)
        self._link_ns = math.inf if operator.link_s is None else round(operator.link_s * 1e9)
        self.planner = Planner(policy, profile, self._measured, execution, worker)
        self._incoming: Planner | None = None
        # From other threads; the ticking one alone decides what is in force, and so what is in use no more.
        self._offers: deque[Planner] = deque()
        self._blending = 0
        self._tick, self._skipped = -1, 0
        self._closed = False
        self._carries: Set[str] = frozenset(FIELDS)
        self._resets = {
            Reset.MEMORY: self._reset_memory,
            Reset.SEQUENCE: self._reset_sequences,
            Reset.EVENTS: self._fallback.reset,
            Reset.SIGNALS: self._measured.reset,
            Reset.COUNTERS: self._reset_counters,
        }
        for reset in self._resets.values():
            reset()

    @property
    def contract(self) -> Contract:
        """Of the policy in force."""
        return self.policy.contract

    @property
    def worker(self) -> Worker:
        """What decides with it."""
        return self.planner.worker

    @property
    def policy(self) -> PolicySession:
        """The policy in force: to be looked at, between ticks."""
        return self.planner.policy

    @property
    def answered(self) -> bool:
        """Whether every inference asked for is done: a driver's `Sample.answered`."""
        incoming = self._incoming
        return self.worker.ready and (incoming is None or incoming.worker.ready)

    @property
    def falling(self) -> bool:
        """Whether a harder step of the fallback table is to come."""
        return not self._fallback.final

    @property
    def swapping(self) -> bool:
        """Whether another policy waits to take over."""
        return self._incoming is not None or bool(self._offers)

    @property
    def next_worker(self) -> Worker:
        """That of the policy that waits to take over; of the one in force where none does."""
        return ((self._offers[-1] if self._offers else self._incoming) or self.planner).worker

    def check_output(self, carries: Set[str]) -> None:
        """Refuse an output that cannot carry what this robot may be told, its fallback included.

        Raises:
            ProfileError: names the fields that are missing.
        """
        self._check_carries(carries, self.contract)
        self._carries = carries

    def _check_carries(self, carries: Set[str], contract: Contract) -> None:
        profile, needed = self.profile, {"tau_ff"}
        if profile.pd_loop == "drive":
            fields = {"position": {"q", "dq", "kp"}, "velocity": {"dq"}, "effort": {"tau_ff"}}
            needed = {"kd"}.union(*(fields[term.kind] for term in contract.actions))
            ladders = [ladder for event in EVENTS for ladder in profile.fallback.ladders(event)]
            for step in chain(profile.start, profile.stop, *ladders):
                if isinstance(step, Brake | Hold | Track):
                    needed |= fields["position"]
        if missing := needed - carries:
            raise ProfileError(
                f"the output cannot carry {', '.join(sorted(missing))}, which robot "
                f"{profile.robot_model!r} needs with pd_loop {profile.pd_loop!r}; "
                f"it carries {', '.join(sorted(carries))}"
            )

    def warmup(self) -> None:
        """Run the policy a few times; nothing of it stays in the memory.

        Raises:
            AndanteError: not `DISABLED`, closed, or an inference that was begun earlier has not ended.
        """
        self._expect(State.DISABLED, "warmup")
        if not self.worker.idle:
            raise AndanteError("cannot warm up: an inference has not ended")
        self.policy.flat_inputs.fill(0.0)
        for _ in range(3):
            self.policy.infer()
        self.policy.reset()

    def activate(self) -> None:
        """Begin: from `DISABLED` to `WAIT_SENSORS`, with everything reset.

        Raises:
            AndanteError: not `DISABLED`, closed, or a fault is latched.
        """
        self._expect(State.DISABLED, "activate")
        if self.fault is not None:
            raise AndanteError(f"cannot activate: a fault is latched ({self.fault}); clear it first")
        self._enter(State.WAIT_SENSORS)

    def clear(self) -> None:
        """Take the latched fault away: from `FAULT` to `DISABLED`, where one may be latched as well.

        Raises:
            AndanteError: in any other state.
        """
        if self.state is not State.DISABLED:
            self._expect(State.FAULT, "clear")
            self._enter(State.DISABLED)
        self.fault = None

    def deactivate(self) -> None:
        """To `DISABLED` from any state, at once and without a stop sequence. A fault stays latched."""
        if self.state is not State.DISABLED:
            self._enter(State.DISABLED)

    def give_up(self, reason: str) -> JointCommand:
        """After an exception out of `tick`: the command of this tick, by the ladder of `non_finite`."""
        self._raise("non_finite", reason)
        self._fall()
        try:
            self._compose()
        except Exception:  # the same once more
            self._command.set_damping(0.0, self._damping)
        return self._command

    def close(self) -> None:
        """Deactivate, and close all workers. Nothing can be activated or warmed up after it."""
        self.deactivate()
        self._closed = True
        for planner in self._planners():
            planner.worker.close()

    def swap(
        self, policy: PolicySession, execution_horizon: int | None = None, worker: Worker | None = None
    ) -> None:
        """Go over to another policy: at the next decision, gradually over a few ticks. Any thread may ask.

        A running one goes on until the new one has its first action. The new memory begins at its initial
        values. A policy of the same digest is the one in force: it stays as it is, with its memory. Delay,
        mode and overlap stay what the constructor was asked for.

        Args:
            policy: warmed up here; owned by this controller from now on. One that was replaced may not come
                back: its last inference may go on.
            execution_horizon: as in the constructor; what was asked for last when None.
            worker: as in the constructor; when None, a new one of the class of the present one.

        Raises:
            ProfileError: policy and profile do not fit, or the output cannot carry its commands. Nothing has
                changed; `worker` stays the caller's.
            AndanteError: another control period or command, or not trained to be executed that way. Likewise.
        """
        new = policy.contract
        periods = [contract.control_period_ns * 1e-6 for contract in (new, self.contract)]
        if periods[0] != periods[1]:
            raise AndanteError("a period of {:g} ms cannot take over from one of {:g} ms".format(*periods))
        check_fit(new, self.profile)
        self._check_carries(self._carries, new)
        told = [[(c.name, c.unit) for c in command_components(each)] for each in (new, self.contract)]
        if told[0] and told[0] != told[1]:
            raise AndanteError("a policy commanded by {} cannot take over from one by {}".format(*told))
        horizon = self._horizon if execution_horizon is None else execution_horizon
        execution = self._resolve(new, horizon, waits=not (worker or self.worker).immediate)
        if policy.digest != self.policy.digest:
            self._horizon = horizon
        offer = next((planner for planner in self._planners() if planner.policy is policy), None)
        if offer is None:
            for _ in range(3):
                policy.infer()
            worker = worker or type(self.worker)(policy)
            offer = Planner(policy, self.profile, self._measured, execution, worker)
        elif worker not in (None, offer.worker):
            worker.close()
        self._offers.append(offer)

    def tick(self, tick: int, sample: Sample) -> JointCommand:
        """Advance by one control tick.

        Args:
            tick: number of this control period; increases, and may skip.
            sample: what is measured and wanted before this tick.

        Returns:
            The command of this tick: finite, within limits, and the same object every time.

        Raises:
            AndanteError: the tick does not increase, or an array's shape is not that of profile and contract.
        """
        if tick <= self._tick:
            raise AndanteError(f"tick {tick} after tick {self._tick}: ticks must increase")
        self._skipped = tick - self._tick - 1 if self.counters.ticks else 0
        self._tick = self._command.tick = tick
        while self._offers:
            self._choose(self._offers.popleft())
        if self.state is not State.RUN and (incoming := self._incoming) is not None:
            self._adopt(incoming)
        if self.state is not State.DISABLED:
            self.counters.skipped += self._skipped
            self._measured.update(sample)
            self._advance(self._watch(sample), sample)
        self._compose()
        self.counters.ticks += self._command.mode != "disabled"
        return self._command

    def _watch(self, sample: Sample) -> str | None:
        """Raise the events that this tick's sample brings; the first reason not to begin anything with it."""
        measured, operator, now_ns = self._measured, sample.operator, sample.now_ns
        seeing = self.state is not State.WAIT_SENSORS or measured.stale is None
        events: list[tuple[str, str | None]] = [("e_stop", self._pressed(operator, now_ns))]
        if seeing:
            events = [
                *measured.faults,
                *events,
                ("non_finite", self.planner.inputs.command.wrong(operator)),
                ("stale_source", measured.stale),
                ("operator", self._lost_link(operator, now_ns)),
                ("overrun", OVERRUN if sample.overrun else None),
                *[("custom", predicate(measured)) for predicate in self._predicates],
            ]
        trouble = None if seeing else measured.stale
        for event, reason in events:
            if reason is not None:
                trouble = trouble or reason
                self._raise(event, reason)
        return trouble

    def _pressed(self, operator: OperatorInput, now_ns: int) -> str | None:
        """Why the emergency stop counts as pressed. It is normally closed: silence is a reason."""
        if operator.e_stop is not None:
            return operator.e_stop
        if operator.heartbeat_ns is None:
            return None if self.profile.operator.heartbeat_s is None else "no emergency-stop device"
        age_ns = now_ns - operator.heartbeat_ns
        if 0 <= age_ns <= self._heartbeat_ns:
            return None
        if age_ns < 0:
            return f"the emergency-stop device's last word is stamped {-age_ns * 1e-6:.1f} ms in the future"
        return f"the emergency-stop device has been silent for {age_ns * 1e-6:.1f} ms"

    def _lost_link(self, operator: OperatorInput, now_ns: int) -> str | None:
        age_ns = self.planner.inputs.command.silence_ns(operator, now_ns)
        lost = self.state in (State.READY, State.RUN) and age_ns > self._link_ns
        return f"no command for {age_ns * 1e-6:.1f} ms" if lost else None

    def _raise(self, event: str, reason: str) -> None:
        live = self.state in LIVE
        if event == "operator" and self.state is not State.RUN and live:
            return  # nothing to lose yet; it only keeps the policy from starting
        if live and self._fallback.tolerates(event, self.state, self._tick, self._skipped):
            return
        pose_known = self.state is not State.WAIT_SENSORS
        self._fallback.escalate(event, self.state, self._tick, self._measured.state, pose_known)
        if self.fault is None:
            self.fault, self.fell = f"{event}: {reason}", (self.state, self._tick)
        if live:
            self._enter(State.FALLBACK)
        self._end_fallback()

    def _fall(self) -> None:
        self._fallback.advance(self._tick, self._measured.state)
        self._end_fallback()

    def _end_fallback(self) -> None:
        if self.state is State.FALLBACK and self._fallback.final:
            self._enter(State.FAULT)

    def _advance(self, trouble: str | None, sample: Sample) -> None:
        """Take the edges that need no event; then let the policy decide where it runs."""
        if sample.operator.stop and self._stop_tick is None:
            self._stop_tick = self._tick + (self._settling if self.state is State.RUN else 0)
        for planner in (self.planner, self._incoming):
            if planner is not None:
                planner.inputs.command.released = self._stop_tick is not None
        stop = self._stop_tick is not None and self._tick >= self._stop_tick
        if self._skipped > self.contract.max_gap_ticks:
            self._begin_anew()
        if stop and self.state in (State.START, State.READY, State.RUN):
            self._enter(State.STOP)
        elif self.state is State.WAIT_SENSORS:
            self.waiting = trouble or self._measured.unmet()
            if stop:
                self._enter(State.DISABLED)
            elif self.waiting is None:
                self._enter(State.START)
        elif self.state is State.START and self._start_sequence.done:
            self._enter(State.READY)
        elif self.state is State.STOP and self._stop_sequence.done:
            self._enter(State.DISABLED)
        elif self.state in (State.FALLBACK, State.FAULT):
            self._fall()
        elif self.state is State.READY:
            self.waiting = trouble
            # The first decision needs a sound sample, and a chunk to hold on to.
            if trouble is None and (sample.operator.start or not self.profile.confirm):
                self._enter(State.RUN)
                self.planner.resting = True
        if self.state is State.RUN:
            self._run(sample)

    def _begin_anew(self) -> None:
        """After a long gap the robot is no longer where the last command was meant for."""
        if self.state is State.RUN:
            self.counters.gaps += 1
            self._reset_memory()
        elif self.state is State.READY:
            self._enter(State.START)
        elif self.state in (State.START, State.STOP):
            self._reset_sequences()
        elif self.state in (State.FALLBACK, State.FAULT):
            self._fallback.begin_anew(self._tick, self._measured.state)

    def _run(self, sample: Sample) -> None:
        """Find this tick's action; an incoming policy takes over as soon as it has one."""
        planner, incoming, counters, failure = self.planner, self._incoming, self.counters, None
        if incoming is not None and (incoming.due or planner.at_border(self._tick)):
            incoming.due = True
            failure = incoming.act(self._tick, self._skipped, sample, counters, alone=False)
        if incoming is not None and incoming.acted:
            self._adopt(incoming)
            np.copyto(self._before.rows, self._command.rows)
            self._blending = SWAP_TICKS
        elif failure is None:
            failure = planner.act(self._tick, self._skipped, sample, counters)
        if failure is not None:
            self._raise(*failure)

    def _planners(self) -> list[Planner]:
        return [each for each in (self.planner, self._incoming, *self._offers) if each is not None]

    def _choose(self, offer: Planner) -> None:
        """Let it wait to take over, unless it does already or is in force; close what is not needed then."""
        before, chosen = self._incoming, offer
        if offer.policy.digest == self.policy.digest:
            chosen = self.planner
        elif before is not None and offer.equals(before):
            chosen = before
        self._incoming = None if chosen is self.planner else chosen
        for planner in (before, offer):
            if planner is not None and planner.worker not in (self.worker, chosen.worker):
                planner.worker.close()

    def _adopt(self, incoming: Planner) -> None:
        """Let it be the one in force."""
        incoming.safety.already = self.planner.safety.saturations
        self.planner.worker.close()
        self.planner, self._incoming = incoming, None
        self._measured.trust(self.contract)
        self._command.valid_for_ns = _validity_ns(self.contract)

    def _compose(self) -> None:
        """Fill the command that the state calls for, and limit it."""
        command, measured, state = self._command, self._measured, self.state
        if state is State.DISABLED:
            command.set_zero("disabled")
            return
        if state is State.RUN and self.planner.acted:
            self.planner.actions.fill(command, self.planner.inputs.limited, measured.q)
            if self._blending:
                self._blend(command)
        elif state in (State.START, State.READY) or (state is State.RUN and self.planner.resting):
            self._start_sequence.advance(command, measured.state)
        elif state is State.STOP:
            self._stop_sequence.advance(command, measured.state)
        elif state in (State.RUN, State.WAIT_SENSORS):
            command.set_damping(measured.q, self._damping)
        else:
            self.counters.yields += self._fallback.fill(command, measured.q)
        if measured.lost and state in (State.WAIT_SENSORS, State.FALLBACK, State.FAULT):
            for row, kind in zip(measured.usable, JOINT_KINDS, strict=True):
                row &= kind not in measured.lost
        if command.mode != "damping" and (measured.lost or measured.faults):  # that needs velocities alone
            measured.usable_dq &= measured.usable_q
        safety = self.planner.safety
        if not safety.limit_command(command, measured.state, measured.usable_dq):
            command.set_zero("damping")
            self._raise("non_finite", "the command")
        self.counters.saturations = safety.saturations

    def _blend(self, command: JointCommand) -> None:
        """Between the last command of the policy before and the present one."""
        share = self._blending / (SWAP_TICKS + 1)
        self._blending -= 1
        np.multiply(command.rows, (1.0 - share) / share, out=command.rows)
        np.add(command.rows, self._before.rows, out=command.rows)
        np.multiply(command.rows, share, out=command.rows)

    def _enter(self, state: State) -> None:
        for reset in EDGES[self.state, state]:
            self._resets[reset]()
        self.state, self._stop_tick, self.waiting = state, None, None

    def _expect(self, state: State, verb: str) -> None:
        if self.state is not state or self._closed:
            found = "after close" if self._closed else f"in state {self.state.name}, only in {state.name}"
            raise AndanteError(f"cannot {verb} {found}")

    def _reset_memory(self) -> None:
        self.planner.reset()
        if (incoming := self._incoming) is not None:
            incoming.reset()
        self._blending = 0

    def _reset_sequences(self) -> None:
        self._start_sequence.restart()
        self._stop_sequence.restart()

    def _reset_counters(self) -> None:
        self.counters = Counters()
        self.planner.safety.reset()
        self._tick = -1


def _validity_ns(contract: Contract) -> int:
    return (contract.max_gap_ticks + 1) * contract.control_period_ns

"""The controller: from one sample to one joint command per tick, whatever happens."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from .action import ActionMap
from .chunk import ChunkBuffer
from .command import JointCommand, Sample
from .errors import AndanteError, ProfileError
from .fallback import FallbackPlayer
from .measurement import Measurement
from .policy import PolicySession
from .profile import EVENTS, Hold, Profile, Track, check_fit
from .safety import SafetyFilter
from .sequence import Sequence
from .states import EDGES, Reset, State
from .worker import SynchronousWorker, Worker

OVERRUN = "work ended after the next deadline, or a tick was missed"


@dataclass
class Counters:
    """What happened since activation."""

    ticks: int = 0
    """Ticks that emitted a command."""
    skipped: int = 0
    """Ticks that the driver left out."""
    decisions: int = 0
    dropped: int = 0
    """Decisions not asked for: their tick was skipped, or a source was stale."""
    refused: int = 0
    """Chunks that came late, or from before a reset."""
    starved: int = 0
    """Ticks of a running policy that no chunk covered."""
    gaps: int = 0
    """Gaps so long that they reset the memory."""
    saturations: int = 0
    """How often an action or a torque began to exceed its limit."""


class Controller:
    """Runs a policy on a robot: `warmup`, `activate`, then `tick` until it is `DISABLED` again.

    Deterministic: the same ticks, samples and calls give the same commands, bit by bit. Nothing sleeps,
    waits or does I/O, and after `warmup` no array is allocated. `confirm`, `stop`, `emergency_stop` and
    `overrun` may come from signal handlers and other threads: the next tick obeys. All else belongs to the
    ticking thread.
    """

    state: State
    fault: str | None
    """Event and reason of the latched fault."""
    counters: Counters

    def __init__(
        self,
        policy: PolicySession,
        profile: Profile,
        execution_horizon: int | None = None,
        worker: Worker | None = None,
    ) -> None:
        """Join a policy and a robot.

        Args:
            policy: owned by this controller from now on; nobody else may advance its memory.
            profile: the robot.
            execution_horizon: s, one of the trained values; the contract's default when None.
            worker: decides with `policy`; one that answers within the tick when None.

        Raises:
            ProfileError: policy and profile do not fit.
            AndanteError: the policy was not trained for that execution horizon, or needs a worker.
        """
        contract = policy.contract
        check_fit(contract, profile)
        trained = contract.execution_horizon
        horizon = trained.default if execution_horizon is None else execution_horizon
        if horizon not in trained.values:
            raise AndanteError(
                f"execution horizon {horizon} was not trained; trained: {list(trained.values)}"
            )
        period_ns, delay = contract.control_period_ns, contract.inference_delay
        if delay.default > 0 and worker is None:
            raise AndanteError(
                f"the policy acts {delay.default} ticks after its observation: a worker must be given, the "
                f"synchronous one answers at once"
            )
        joints, columns = len(profile.actuated), len(contract.action_joints)
        self.contract = contract
        self.profile = profile
        self.execution_horizon = horizon
        self.worker: Worker = SynchronousWorker(policy) if worker is None else worker
        self.state = State.DISABLED
        self.fault = None
        self._policy = policy
        self._chunks = ChunkBuffer(contract.chunk_size, columns, delay.default, max(delay.values))
        self._measured = Measurement(contract, profile)
        self._safety = SafetyFilter(contract, profile)
        self._actions = ActionMap(contract, profile)
        self._start_sequence = Sequence(profile.start, profile, period_ns)
        self._stop_sequence = Sequence(profile.stop, profile, period_ns)
        self._fallback = FallbackPlayer(profile, period_ns)
        self._command = JointCommand.allocate(joints, (contract.max_gap_ticks + 1) * period_ns)
        self._damping = profile.kd("damping")
        self._action = np.zeros(columns)
        self._e_stop: str | None = None
        self._tick = -1
        self._skipped = 0
        self._next_decision: int | None = None
        self._resets = {
            Reset.MEMORY: self._reset_memory,
            Reset.SEQUENCE: self._reset_sequences,
            Reset.EVENTS: self._fallback.reset,
            Reset.CONFIRMATION: self._reset_confirmation,
            Reset.REQUESTS: self._reset_requests,
            Reset.COUNTERS: self._reset_counters,
        }
        for reset in self._resets.values():
            reset()

    def check_output(self, carries: Set[str]) -> None:
        """Refuse an output that cannot carry what this robot may be told, its fallback included.

        Raises:
            ProfileError: names the fields that are missing.
        """
        needed = {"tau_ff"}
        if self.profile.pd_loop == "drive":
            profile = self.profile
            steps = [step for event in EVENTS for step in profile.fallback.ladder(event)]
            moves = [
                step for step in (*profile.start, *profile.stop, *steps) if isinstance(step, Hold | Track)
            ]
            kinds = {term.kind for term in self.contract.actions}
            needed = {"kd"} | ({"tau_ff"} if "effort" in kinds else set())
            if moves or "position" in kinds:
                needed |= {"q", "dq", "kp"}
        if missing := needed - carries:
            raise ProfileError(
                f"the output cannot carry {', '.join(sorted(missing))}, which robot "
                f"{self.profile.robot_model!r} needs with pd_loop {self.profile.pd_loop!r}; "
                f"it carries {', '.join(sorted(carries))}"
            )

    def warmup(self) -> None:
        """Run the policy a few times; nothing of it stays in the memory.

        Raises:
            AndanteError: not `DISABLED`.
        """
        self._expect(State.DISABLED, "warmup")
        for _ in range(3):
            self._policy.infer()
        self._policy.reset()

    def activate(self) -> None:
        """Begin: from `DISABLED` to `WAIT_SENSORS`, with everything reset.

        Raises:
            AndanteError: not `DISABLED`, or a fault is latched.
        """
        self._expect(State.DISABLED, "activate")
        if self.fault is not None:
            raise AndanteError(f"cannot activate: a fault is latched ({self.fault}); clear it first")
        self._enter(State.WAIT_SENSORS)

    def confirm(self) -> None:
        """Let the policy run, from `READY`.

        Raises:
            AndanteError: not `READY`.
        """
        self._expect(State.READY, "confirm")
        self._confirmed = True

    def stop(self) -> None:
        """Stop softly: play the stop sequence, then `DISABLED`. A fault goes on."""
        self._stop_requested = self.state is not State.DISABLED

    def emergency_stop(self, reason: str = "operator") -> None:
        """Raise the event `e_stop`; it stays until `clear`."""
        self._e_stop = reason

    def overrun(self) -> None:
        """Tell that work ended after the next deadline, or that a tick was missed."""
        self._overrun = True

    def clear(self) -> None:
        """Take the latched fault and the emergency stop away: from `FAULT` to `DISABLED`.

        Raises:
            AndanteError: in any other state.
        """
        if self.state is not State.DISABLED:
            self._expect(State.FAULT, "clear")
            self._enter(State.DISABLED)
        self.fault = None
        self._e_stop = None

    def deactivate(self) -> None:
        """To `DISABLED` from any state, at once and without a stop sequence. A fault stays latched."""
        if self.state is not State.DISABLED:
            self._enter(State.DISABLED)

    def tick(self, tick: int, sample: Sample) -> JointCommand:
        """Advance by one control tick.

        Args:
            tick: number of this control period; increases, and may skip.
            sample: what is measured before this tick.

        Returns:
            The command of this tick: finite, within limits, and the same object every time.

        Raises:
            AndanteError: the tick does not increase.
        """
        if tick <= self._tick:
            raise AndanteError(f"tick {tick} after tick {self._tick}: ticks must increase")
        self._skipped = tick - self._tick - 1 if self.counters.ticks else 0
        self._tick = self._command.tick = tick
        if self.state is State.DISABLED:
            self._command.set_zero("disabled")
            return self._command
        self.counters.skipped += self._skipped
        self._measured.update(sample)
        self._advance(self._watch())
        self._compose()
        if self._command.mode != "disabled":
            self.counters.ticks += 1
        return self._command

    def _watch(self) -> bool:
        """Raise the events that this tick's measurement and the driver bring; whether there were none."""
        measured = self._measured
        events = [
            ("non_finite", measured.not_finite()),
            ("e_stop", self._e_stop),
            ("limit", measured.beyond_limit()),
            ("stale_source", measured.stale),
            ("overrun", OVERRUN if self._overrun else None),
        ]
        self._overrun = False
        quiet = True
        for event, reason in events:
            blind = self.state is State.WAIT_SENSORS and measured.stale is not None
            if reason is not None and (not blind or event == "e_stop"):
                quiet = False
                self._raise(event, reason)
        return quiet

    def _raise(self, event: str, reason: str) -> None:
        live = self.state not in (State.FALLBACK, State.FAULT)
        if live and self._fallback.tolerates(event, self._tick, self._skipped):
            return
        pose_known = self.state is not State.WAIT_SENSORS
        if not self._fallback.escalate(event, self._tick, self._measured.q, pose_known):
            return
        if self.fault is None:
            self.fault = f"{event}: {reason}"
        if live:
            self._enter(State.FALLBACK)
        if self.state is State.FALLBACK and self._fallback.final:
            self._enter(State.FAULT)

    def _advance(self, quiet: bool) -> None:
        """Take the edges that need no event; then let the policy decide where it runs."""
        if self._skipped > self.contract.max_gap_ticks:
            self._begin_anew()
        if self._stop_requested and self.state in (State.START, State.READY, State.RUN):
            self._enter(State.STOP)
        elif self.state is State.WAIT_SENSORS:
            if self._stop_requested:
                self._enter(State.DISABLED)
            elif self._measured.stale is None:
                self._enter(State.START)
        elif self.state is State.START and self._start_sequence.done:
            self._enter(State.READY)
        elif self.state is State.STOP and self._stop_sequence.done:
            self._enter(State.DISABLED)
        elif self.state is State.FALLBACK:
            self._fallback.advance(self._tick, self._measured.q)
            if self._fallback.final:
                self._enter(State.FAULT)
        # The first decision needs a sound sample, and a chunk to hold on to.
        if self.state is State.READY and self._confirmed and quiet:
            self._enter(State.RUN)
        if self.state is State.RUN:
            self._decide()

    def _begin_anew(self) -> None:
        """After a long gap the robot is no longer where the last command was meant for."""
        if self.state is State.RUN:
            self.counters.gaps += 1
            self._reset_memory()
        elif self.state is State.READY:
            self._enter(State.START)
        elif self.state in (State.START, State.STOP):
            self._reset_sequences()

    def _decide(self) -> None:
        """Ask for a decision if the grid has one here, take the answer, and find this tick's action."""
        counters, fresh = self.counters, self._measured.stale is None
        if self._next_decision is None and fresh:
            self._next_decision = self._tick
        while self._next_decision is not None and self._next_decision <= self._tick:
            if self._next_decision == self._tick and fresh:
                self._measured.gather(self._policy.inputs)
                self.worker.request(self._tick, self._chunks.epoch)
                counters.decisions += 1
            else:
                counters.dropped += 1
            self._next_decision += self.execution_horizon
        self._receive()
        action = self._chunks.action_at(self._tick)
        if action is not None:
            np.copyto(self._action, action)
            self._safety.limit_action(self._action)
            self._acted = True
        elif self.state is State.RUN:
            counters.starved += 1
            self._raise("starvation", f"no chunk covers tick {self._tick}")

    def _receive(self) -> None:
        answer = self.worker.poll()
        if answer is None:
            return
        if answer.epoch == self._chunks.epoch and not answer.finite:
            self._raise("non_finite", "the policy's chunk or memory is not finite")
        elif self._chunks.put(answer.chunk, answer.tick, answer.epoch, self._tick):
            self._policy.commit()
        else:
            self.counters.refused += 1

    def _compose(self) -> None:
        """Fill the command that the state calls for, and limit it."""
        command, measured = self._command, self._measured
        if self.state is State.DISABLED:
            command.set_zero("disabled")
            return
        if self.state is State.WAIT_SENSORS:
            command.set_damping(measured.q, self._damping)
        elif self.state is State.START:
            self._start_sequence.advance(command, measured.q)
        elif self.state is State.READY:
            self._start_sequence.rest(command, measured.q)
        elif self.state is State.RUN and not self._acted:
            command.set_damping(measured.q, self._damping)
        elif self.state is State.RUN:
            self._actions.fill(command, self._action, measured.q)
        elif self.state is State.STOP:
            self._stop_sequence.advance(command, measured.q)
        else:
            self._fallback.fill(command, measured.q)
        if measured.stale is not None and self.state in (State.WAIT_SENSORS, State.FALLBACK, State.FAULT):
            measured.usable.fill(False)
        if not self._safety.limit_command(command, measured.q, measured.dq, measured.usable):
            command.set_zero("damping")
            self._raise("non_finite", "the command")
        self.counters.saturations = self._safety.saturations

    def _enter(self, state: State) -> None:
        for reset in EDGES[self.state, state]:
            self._resets[reset]()
        self.state = state

    def _expect(self, state: State, verb: str) -> None:
        if self.state is not state:
            raise AndanteError(f"cannot {verb} in state {self.state.name}, only in {state.name}")

    def _reset_memory(self) -> None:
        self._policy.reset()
        self._chunks.reset()
        self._next_decision = None
        self._acted = False

    def _reset_sequences(self) -> None:
        self._start_sequence.restart()
        self._stop_sequence.restart()

    def _reset_confirmation(self) -> None:
        self._confirmed = False

    def _reset_requests(self) -> None:
        self._stop_requested = self._overrun = False

    def _reset_counters(self) -> None:
        self.counters = Counters()
        self._safety.reset()
        self._tick = -1

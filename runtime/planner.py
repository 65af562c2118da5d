"""When the policy decides, and which action belongs to a tick: decision grid, chunks, memory."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Literal

from .action import ActionMap
from .chunk import ChunkBuffer
from .command import Sample
from .contract import Contract, Trained
from .errors import AndanteError
from .inputs import Inputs
from .measurement import Measurement
from .policy import PolicySession
from .profile import Profile
from .safety import SafetyFilter
from .worker import Worker

Mode = Literal["open_loop", "receding", "blend", "prefix"]
"""How chunks are executed."""


@dataclass
class Counters:
    """What happened since activation."""

    ticks: int = 0
    """Ticks that emitted a command."""
    skipped: int = 0
    """Ticks that the driver left out."""
    decisions: int = 0
    """Decisions asked for on the grid."""
    dropped: int = 0
    """Decisions not asked for: tick skipped, source stale, or the one before not answered."""
    off_grid: int = 0
    """Evaluations beside the grid, for a tick that no chunk covers; the memory stays as it is."""
    refused: int = 0
    """Chunks that came late, or from before a reset."""
    resting: int = 0
    """Ticks of a running policy until its first chunk may act, after a gap that reset its memory too."""
    starved: int = 0
    """Ticks of a running policy after that, that no chunk covered."""
    gaps: int = 0
    """Gaps so long that they reset the memory."""
    saturations: int = 0
    """How often an action or a torque began to exceed its limit."""
    yields: int = 0
    """Ticks of braking beyond a joint's acceleration or jerk, so as not to leave its position range."""


@dataclass(frozen=True)
class Execution:
    """How chunks are executed; see `resolve`."""

    mode: Mode
    """See `resolve`."""
    horizon: int
    """s."""
    delay: int
    """d to begin with."""
    overlap: int
    """Ticks over which a new chunk takes over."""

    @classmethod
    def resolve(
        cls,
        contract: Contract,
        horizon: int | None = None,
        delay: int | None = None,
        mode: Mode | None = None,
        overlap: int | None = None,
        waits: bool = False,
    ) -> Execution:
        """Fill in what is not given, from what the policy was trained for.

        `open_loop` plays chunks whole, `receding` replaces them before their end, `blend` too but gradually
        (over a third of a chunk, unless `overlap` says otherwise), `prefix` tells the policy which actions
        are already committed (training-time real-time chunking; Black et al., 2025). `waits` says whether the
        worker may answer at a later tick than it is asked at.

        Raises:
            AndanteError: not trained, or mode and horizon do not go together.
        """
        size = contract.chunk_size
        if horizon is None and mode == "open_loop":
            horizon = size
        s = _trained("execution horizon", contract.execution_horizon, horizon)
        d = _trained("inference delay", contract.inference_delay, delay)
        if waits and max(contract.inference_delay.values) == 0:
            raise AndanteError("the policy was trained for answers within their tick: no asynchronous worker")
        told = any(source.kind == "committed_actions" for source in contract.sources)
        natural: Mode = "prefix" if told else "open_loop" if s == size else "receding"
        mode = mode or natural
        fits = s == size if mode == "open_loop" else mode == "prefix" or s < size
        if (mode == "prefix") != told or not fits:
            raise AndanteError(
                f"mode {mode!r} is not possible: the policy was trained for mode {natural!r}, "
                f"with an execution horizon of {s} and chunks of {size}"
            )
        longest = size - s if mode == "blend" else 0
        overlap = min(size // 3, longest) if overlap is None else overlap
        if not min(longest, 1) <= overlap <= longest:
            raise AndanteError(f"mode {mode!r}: an overlap of at most {longest} ticks, found {overlap}")
        return cls(mode, s, d, overlap)


def _trained(what: str, trained: Trained, asked: int | None) -> int:
    value = trained.default if asked is None else asked
    if value not in trained.values:
        raise AndanteError(f"{what} {value} was not trained; trained: {list(trained.values)}")
    return value


@dataclass(eq=False)
class Planner:
    """Runs one policy: asks it on the grid t0 + k s, and finds the action of every tick."""

    policy: PolicySession
    """The policy."""
    profile: InitVar[Profile]
    """The robot."""
    measured: Measurement
    """What is known of it."""
    execution: Execution
    """How chunks are executed."""
    worker: Worker
    """Decides with `policy`."""
    delay: int = field(init=False)
    """d now; grows where inference takes longer than it."""
    acted: bool = field(init=False)
    """Whether there has been an action since the memory's reset."""
    resting: bool = field(init=False)
    """Whether the robot rests at its start pose until the first chunk acts; after a gap it is damped."""
    due: bool = field(init=False)
    """Whether the policy before has come to a decision, from which on this one may take over."""

    def __post_init__(self, profile: Profile) -> None:
        self.contract = contract = self.policy.contract
        self.inputs = Inputs(self.policy, profile, self.measured)
        self.safety = SafetyFilter(contract, profile)
        self.actions = ActionMap(contract, profile)
        self._delays = sorted(contract.inference_delay.values)
        width, overlap = len(contract.action_joints), self.execution.overlap
        self._chunks = ChunkBuffer(contract.chunk_size, width, self._delays[-1], overlap)
        self._asked: int | None = None
        self._commits, self._epoch = False, 0
        self.reset()

    def equals(self, other: Planner) -> bool:
        """Whether both run the same policy in the same way."""
        return self.policy.digest == other.policy.digest and self.execution == other.execution

    def reset(self) -> None:
        """Put memory and delay to their initial values; drop chunks (under way too), grid and histories."""
        self._chunks.reset()
        self.inputs.restart()
        self._origin: int | None = None
        self._next: int | None = None
        self.acted = self.resting = self.due = False
        self.delay = self.execution.delay
        # A thread that is inferring still reads the memory.
        self._must_reset = not self.worker.idle
        if not self._must_reset:
            self.policy.reset()

    def at_border(self, tick: int) -> bool:
        """Whether a decision is due, or overdue."""
        return self._next is not None and self._next <= tick

    def act(
        self, tick: int, skipped: int, sample: Sample, counters: Counters, alone: bool = True
    ) -> tuple[str, str] | None:
        """Let the policy decide if the grid has a decision here; find this tick's action.

        Returns:
            Event and reason, if something went wrong.
        """
        fresh = self.measured.stale is None
        failure = self.receive(tick, sample.answered, counters)
        if self._origin is None and fresh:
            self._origin = self._next = tick
        since = 0 if self._origin is None else tick - self._origin
        self.inputs.collect(since, skipped, sample.operator, sample.now_ns)
        while self._next is not None and self._next <= tick:
            if self._next == tick and fresh and self._asked is None:
                self._grow(sample.delay_ticks)
                self.ask(tick, True)
                counters.decisions += 1
            else:
                counters.dropped += 1
            self._next += self.execution.horizon
        if self._asked == tick:
            failure = failure or self.receive(tick, sample.answered, counters)
        if failure is None and not self.play(tick):
            if fresh and self._asked is None and sample.answered and self.delay == 0:
                self.ask(tick, False)
                counters.off_grid += 1
                failure = self.receive(tick, sample.answered, counters)
            # While another policy plays on, nothing is missing.
            if failure is None and not self.play(tick) and alone:
                if self._origin is not None and since < self.delay:
                    counters.resting += 1
                    return None
                counters.starved += 1
                return "starvation", f"no chunk covers tick {tick}"
        return failure

    def play(self, tick: int) -> bool:
        """Take this tick's action from the chunks, if one covers it."""
        action = self._chunks.action_at(tick)
        if action is None:
            return False
        self.inputs.raw[:] = action
        self.inputs.limited[:] = action
        self.safety.limit_action(self.inputs.limited)
        self.acted = True
        return True

    def _grow(self, ticks: int) -> None:
        """Take the least trained delay that inference keeps; never a smaller one than before."""
        if ticks > self.delay:
            self.delay = next((d for d in self._delays if d >= ticks), self._delays[-1])

    def ask(self, tick: int, commits: bool) -> None:
        """Have the policy decide on what has been collected; `receive` takes the answer."""
        self.inputs.gather(tick, self._chunks, self.delay)
        self._asked, self._commits, self._epoch = tick, commits, self._chunks.epoch
        self.worker.request(tick, self._chunks.epoch)

    def receive(self, tick: int, answered: bool, counters: Counters) -> tuple[str, str] | None:
        """Take the answer once it is due; only an accepted one advances the memory.

        Returns:
            Event and reason, if the policy failed.
        """
        current = self._asked is not None and self._epoch == self._chunks.epoch
        if self._asked is None or not answered or (current and tick < self._asked + self.delay):
            return None
        answer = self.worker.poll()
        if answer is None:
            return None
        self._asked = None
        if self._must_reset:
            self._must_reset = False
            self.policy.reset()
        if not current:
            counters.refused += 1
        elif answer.error is not None:
            return "non_finite", answer.error
        elif not self._chunks.put(answer.chunk, answer.tick, answer.epoch, tick, self.delay):
            counters.refused += 1
        elif self._commits:
            self.policy.commit()
        return None

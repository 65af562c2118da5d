"""What can be chosen about a policy, about PPO, and about a run. Without torch: `--help` needs it."""

from __future__ import annotations

import math
from typing import Literal

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim.spec import TaskSpec, get_spec
from andante.sim.spec.actions import with_actions
from andante.sim.spec.randomization import Randomization


def check_seed(seed: int) -> None:
    """Raise `AndanteError` unless every generator takes the seed, and those that are derived from it."""
    if not 0 <= seed < 2**62:
        raise AndanteError(f"seed must be 0 to 2^62 - 1, found {seed}")


def _check_finite(config: Record) -> None:
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise AndanteError(f"{name} must be finite, found {value}")


def _check_positive(config: Record, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise AndanteError(f"{name} must be positive, found {value}")


def _check_not_negative(config: Record, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 0:
            raise AndanteError(f"{name} must not be negative, found {getattr(config, name)}")


class PolicyConfig(Record, frozen=True):
    """The network."""

    memory: str = "gru"
    """Memory cell: gru, lstm, mingru, mingru-hard, lru, ffm, mlp for none, or one that a package added."""
    memory_layers: int = 1
    """Memory cells one above the other."""
    decoder: str = "mlp"
    """Chunk decoder: mlp, all actions at once, or gru, one after the other; or a baseline: hold, one action
    for the whole chunk, or interpolate, straight from the last action to the next."""
    hidden_size: int = 64
    """Width of the encoder, the memory and the decoder."""
    chunk_size: int = 5
    """H: actions per decision."""
    execution_horizon: int | None = None
    """s: ticks between two decisions; the whole chunk unless given."""
    action_history: int = 0
    """Least number of ticks, back from the last, of which the policy is told what was executed."""
    committed_actions: int = 0
    """Ticks, from the next on, of which the policy is told what is already fixed: for inference delays."""
    initial_std: float = 1.0
    """Standard deviation of exploration at the start, in the task's unit of action."""

    def __post_init__(self) -> None:
        _check_finite(self)
        _check_positive(self, "memory_layers", "hidden_size", "chunk_size")
        _check_positive(self, "execution_horizon", "initial_std")
        _check_not_negative(self, "action_history", "committed_actions")
        if self.execution_horizon is not None and self.execution_horizon > self.chunk_size:
            raise AndanteError(
                f"execution_horizon must be at most chunk_size, {self.chunk_size}, "
                f"found {self.execution_horizon}"
            )
        if self.decoder == "interpolate" and self.execution_horizon not in (None, self.chunk_size):
            raise AndanteError(
                f"decoder interpolate reaches its action at the end of the chunk: execution_horizon must be "
                f"{self.chunk_size}, found {self.execution_horizon}"
            )


class PPOConfig(Record, frozen=True):
    """Proximal policy optimisation over chunks."""

    credit: Literal["step", "chunk"] = "step"
    """Credit for each tick, or (semi-Markov) for each chunk as one action; decoders that tie the actions of a
    chunk have chosen only one, and credit is the chunk's."""
    decisions: int = 32
    """K: decisions of each world per iteration; gradients flow back through all of them."""
    epochs: int = 4
    """Passes over an iteration's data."""
    minibatches: int = 8
    """Parts that the worlds are split into; sequences stay whole."""
    gamma: float = 0.995
    """Discount per tick."""
    gae_lambda: float = 0.97
    """Decay of generalised advantage estimation per tick."""
    clip: float = 0.2
    """Largest change of the probability ratio that is rewarded."""
    value_clip: float | None = None
    """Largest change of a value per iteration, relative to the size of returns; not clipped unless given."""
    entropy_bonus: float = 0.003
    """Weight of the entropy."""
    final_std: float | None = None
    """Bound on the standard deviation of exploration, see `final_std_ticks`; none unless given."""
    final_std_ticks: int = 1_000_000
    """The bound falls in a straight line from `initial_std` to `final_std` by then, and stays there."""
    smoothness: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Cost per tick of the mean square of the first, second and third difference of the executed actions, in
    the task's unit of action; for the policy to foresee it, `action_history` should be as long. The critic
    sees as many."""
    state_passing: float = 0.0
    """Share of worlds that begin an iteration from the memory state of another world."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    max_learning_rate: float = 6e-3
    """Bound on the adapted learning rate."""
    target_kl: float = 0.015
    """KL divergence per tick that the learning rate is adapted to."""
    max_grad_norm: float = 1.0
    """Gradients of actor and critic are each clipped to this norm."""
    critic_size: int = 64
    """Width of the critic's two layers."""

    def __post_init__(self) -> None:
        _check_finite(self)
        _check_positive(self, "decisions", "epochs", "minibatches", "clip", "value_clip", "learning_rate")
        _check_positive(self, "max_learning_rate", "target_kl", "max_grad_norm", "critic_size")
        _check_positive(self, "final_std", "final_std_ticks")
        _check_not_negative(self, "entropy_bonus")
        if not all(0.0 <= weight < math.inf for weight in self.smoothness):
            raise AndanteError(f"smoothness must be finite and not negative, found {list(self.smoothness)}")
        for name in ("gamma", "gae_lambda", "state_passing"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise AndanteError(f"{name} must be from 0 to 1, found {getattr(self, name)}")
        if self.gamma == 1.0:
            raise AndanteError("gamma must be below 1, since returns go on past time-outs; found 1.0")


class TrainConfig(Record, frozen=True):
    """One training run."""

    task: str
    """Task name, see `andante tasks`."""
    ticks: int
    """Budget: control ticks over all worlds, rounded up to whole iterations."""
    policy: PolicyConfig = PolicyConfig()
    """The network."""
    ppo: PPOConfig = PPOConfig()
    """The algorithm."""
    randomization: Randomization = Randomization()
    """What differs between worlds and between episodes, in evaluations too."""
    num_worlds: int = 256
    """Worlds simulated side by side."""
    device: str = "auto"
    """cuda, cuda:N, cpu, or auto: CUDA where there is one. Evaluations are on the CPU."""
    seed: int = 0
    """Seed of every random draw of the training."""
    threads: int = 1
    """Threads of the update, each with a part of a minibatch's worlds; results depend on it. Physics takes
    all cores."""
    evaluations: int = 10
    """Deterministic evaluations during training; the best policy is kept."""
    checkpoint_seconds: float = 30.0
    """Time between two checkpoints."""

    def __post_init__(self) -> None:
        _check_finite(self)
        check_seed(self.seed)
        _check_positive(self, "ticks", "num_worlds", "threads", "evaluations", "checkpoint_seconds")
        if self.num_worlds % self.ppo.minibatches:
            raise AndanteError(
                f"num_worlds must be a multiple of ppo.minibatches, {self.ppo.minibatches}, "
                f"found {self.num_worlds}"
            )

    @property
    def spec(self) -> TaskSpec:
        """The task, with the sources of actions that the policy reads."""
        return with_actions(get_spec(self.task), self.policy.action_history, self.policy.committed_actions)

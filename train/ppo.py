"""Proximal policy optimisation (arXiv 1707.06347) for policies that have memory and emit chunks.

With credit `step`, the process between two decisions is the augmented one whose observation is latched:
every executed tick has its own reward, value, advantage, probability ratio and clip, and gradients reach
the network through the chunk decoder and, over decisions, through the memory. With credit `chunk`, a
decision is one action that lasts several ticks (semi-Markov). With H = 1 both are plain PPO.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.worlds import Worlds

from . import gaussian
from .allocator import keep_freed_memory
from .config import PPOConfig, TrainConfig
from .critic import Critic
from .finite import NonFiniteError, require_finite
from .learn import learn
from .policy import Policy
from .returns import advantages_per_chunk, advantages_per_tick
from .rollout import Rollout, collect
from .smoothness import RecentActions
from .timed import TimedScheduler, make_scheduler
from .timed_rollout import TimedRollout, collect_timed

MIN_LEARNING_RATE = 1e-5
LEARNING_RATE_STEP = 1.2


class Counts(NamedTuple):
    """How many there are, as scalars: what a mean is over."""

    credited: Tensor
    valued: Tensor
    executed: Tensor


@dataclass(frozen=True)
class Batch:
    """A rollout with what the update needs; U is s with credit `step`, 1 with credit `chunk`.

    Where worlds have a time of their own, K counts ticks, and U is 1.
    """

    rollout: Rollout | TimedRollout
    behaviour_log_std: Tensor
    """[A]."""
    credited: Tensor
    """Bool [K, B, U]: has an advantage."""
    valued: Tensor
    """Bool [K, B, U]: has a target of the value. All ticks, where decisions are not on time."""
    log_prob: Tensor
    """Of the behaviour policy [K, B, U]."""
    critic_inputs: Tensor
    """[K, B, U, X]."""
    value: Tensor
    """Before the update [K, B, U]."""
    advantage: Tensor
    """Normalised over all that is credited [K, B, U]."""
    target: Tensor
    """Of the value [K, B, U]."""

    def counts(self, index: Tensor) -> Counts:
        """Of the worlds in `index`."""
        masks = (self.credited, self.valued, self.rollout.executed)
        return Counts(*(mask.index_select(1, index).sum() for mask in masks))

    def worlds(self, index: Tensor) -> Batch:
        """The part of the worlds in `index`."""
        picked = {
            name: value.index_select(1, index)
            for name, value in vars(self).items()
            if name not in ("rollout", "behaviour_log_std")
        }
        return Batch(self.rollout.worlds(index), self.behaviour_log_std, **picked)


class Losses(NamedTuple):
    """Means over everything credited in a minibatch, as scalars with gradients, and what to watch."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    """KL(behaviour || current) per tick."""
    clip_fraction: Tensor


class PPO:
    """The trainer: collects, estimates advantages, updates. All of its state is in `state_dict`."""

    def __init__(
        self,
        env: Worlds,
        policy: Policy,
        config: PPOConfig | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        """`threads`: of the update, on the CPU; each takes a part of the worlds of a minibatch."""
        config = config or PPOConfig()
        _require_fit(env, policy, config)
        self.env = env
        self.policy = policy.to(env.device)
        self.seed = seed
        self.config = config
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self.credits_ticks = config.credit == "step" and not policy.decoder.ties
        """Whether every tick has an advantage of its own, or every decision."""
        self.recent = RecentActions(self.policy, config.smoothness, env.num_worlds)
        self.critic = Critic(
            env.critic_size + self.recent.size,
            policy.spec.action_size,
            policy.chunk_size,
            policy.execution_horizon,
            config.critic_size,
            timed=env.timing is not None,
        ).to(env.device)
        self.parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.learning_rate, fused=True)
        # On the CPU wherever the worlds are: a run can go on, and its dump be replayed, on another device.
        self.generator = torch.Generator().manual_seed(seed)
        self.scheduler = make_scheduler(env, policy)
        self._spread_time_outs()
        self.rollout: Rollout | TimedRollout = Rollout.empty(self.scheduler, self.recent, config.decisions)
        """What the last iteration learned from."""
        self.iteration = 0

    @classmethod
    def from_config(cls, config: TrainConfig) -> PPO:
        """Environment, policy and trainer of a run.

        Seeds torch, lets each of its operations take one thread, and see `keep_freed_memory`.

        Raises:
            AndanteError: an unknown task, memory cell or decoder.
        """
        torch.set_num_threads(1)
        keep_freed_memory()
        torch.manual_seed(config.seed)
        env = make(
            config.spec,
            config.num_worlds,
            seed=config.seed,
            device=config.device,
            randomization=config.randomization,
        )
        return cls(env, Policy(env.spec, config.policy), config.ppo, config.seed, config.threads)

    def learn(self, ticks: int, run_dir: str | Path) -> bool:
        """Train for a budget of ticks in a new run folder, once; see `learn.learn`."""
        config = TrainConfig(
            task=self.env.spec.name,
            ticks=ticks,
            policy=self.policy.config,
            ppo=self.config,
            randomization=self.env.randomization,
            num_worlds=self.env.num_worlds,
            device=self.env.device_name,
            seed=self.seed,
            threads=self.threads,
        )
        return learn(self, config, Path(run_dir))

    @property
    def ticks(self) -> int:
        """Simulated so far."""
        return self.iteration * self.ticks_per_iteration

    @property
    def ticks_per_iteration(self) -> int:
        """Ticks that one iteration simulates, over all worlds."""
        return self.env.num_worlds * self.config.decisions * self.policy.execution_horizon

    def iterate(self) -> dict[str, float]:
        """Collect, then update; returns what to log.

        Raises:
            NonFiniteError: an observation, reward, loss, gradient or parameter is not finite.
        """
        terms = self.collect()
        batch = self.prepare(self.rollout)
        history = []
        for _ in range(self.config.epochs):
            order = torch.randperm(self.env.num_worlds, generator=self.generator).to(self.env.device)
            for worlds in order.chunk(self.config.minibatches):
                losses = self._differentiate(batch, worlds)
                self._adapt_learning_rate(float(losses.kl))
                self._descend(losses)
                history.append(torch.stack(losses))
        for name, parameter in self._named_parameters():
            require_finite(f"parameter {name!r}", parameter)
        self._update_normalizers(batch)
        self.iteration += 1
        self._bound_std()
        policy_loss, value_loss, entropy, kl, clip_fraction = torch.stack(history).mean(0).tolist()
        return {
            "reward_per_tick": float(self.rollout.reward.sum() / self.rollout.valid.sum()),
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": kl,
            "clip_fraction": clip_fraction,
            "action_std": float(self.policy.log_std.detach().exp().mean()),
            "diverged_worlds": float(self.env.diverged),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            **{f"reward/{name}": mean for name, mean in terms.items()},
            **{f"curriculum/{name}": value for name, value in self.env.curriculum_statistics().items()},
        }

    def collect(self) -> dict[str, float]:
        """Let the policy act, and keep the rollout; returns mean terms of the reward.

        Raises:
            NonFiniteError: an observation, an action, a true state or a reward is not finite.
        """
        self._pass_states()
        scheduler, rest = self.scheduler, (self.generator, self.recent, self.config.smoothness)
        if isinstance(scheduler, TimedScheduler):
            ticks = self.config.decisions * self.policy.execution_horizon
            self.rollout, terms = collect_timed(scheduler, self.critic, ticks, *rest)
            return terms
        assert isinstance(self.rollout, Rollout)
        return collect(scheduler, self.rollout, *rest)

    @torch.no_grad()
    def prepare(self, rollout: Rollout | TimedRollout) -> Batch:
        """Values, advantages and log-probabilities under the behaviour policy."""
        config, critic = self.config, self.critic
        log_prob = gaussian.log_prob(rollout.u, rollout.mean, self.policy.log_std)
        ends = (rollout.reward, rollout.terminated, rollout.truncated, rollout.valid)
        if isinstance(rollout, TimedRollout):
            credited, inputs = rollout.executed, rollout.inputs
            value, next_value = critic(inputs), critic(rollout.next_inputs)
            advantage = advantages_per_tick(*ends, value, next_value, config.gamma, config.gae_lambda)
        elif self.credits_ticks:
            credited = rollout.valid
            inputs = critic.in_chunk(rollout.states, rollout.mean)
            value = critic(inputs)
            # Tick i leads to phase i + 1 of the same chunk, or to where the next decision is due.
            next_value = torch.cat([value[..., 1:], critic(critic.undecided(rollout.critic[:, :, -1:]))], -1)
            advantage = advantages_per_tick(*ends, value, next_value, config.gamma, config.gae_lambda)
        else:
            credited = rollout.valid[..., :1]
            log_prob = (log_prob * rollout.executed).sum(-1, keepdim=True)
            inputs = critic.undecided(rollout.critic[:, :, :1])
            value = critic(inputs)
            last = rollout.valid.sum(-1)[..., None, None].expand(-1, -1, 1, rollout.critic.shape[-1])
            next_value = critic(critic.undecided(rollout.critic.gather(2, last)))
            advantage = advantages_per_chunk(
                *ends, value.squeeze(-1), next_value.squeeze(-1), config.gamma, config.gae_lambda
            ).unsqueeze(-1)
        require_finite("value", value)
        target = value + advantage
        if len(selected := advantage[credited]) > 1:
            advantage = (advantage - selected.mean()) / (selected.std() + 1e-8)
        behaviour = self.policy.log_std.clone()
        valued = rollout.valid if isinstance(rollout, TimedRollout) else credited
        return Batch(rollout, behaviour, credited, valued, log_prob, inputs, value, advantage, target)

    def losses(self, batch: Batch, counts: Counts | None = None) -> Losses:
        """The clipped objective and the value error of a batch of whole sequences.

        With `counts` of a larger batch, the share of these worlds in its means.
        """
        rollout, config, log_std = batch.rollout, self.config, self.policy.log_std
        means = self.policy.scan(rollout.sources, rollout.reset, rollout.decided, rollout.h0)
        mean, executed = rollout.chosen(means), rollout.executed
        log_prob = gaussian.log_prob(rollout.u, mean, log_std)
        if not self.credits_ticks:
            log_prob = (log_prob * executed).sum(-1, keepdim=True)
        counts = counts or batch.counts(torch.arange(len(rollout.h0), device=rollout.h0.device))
        count = counts.credited.clamp(min=1)  # none in a minibatch of worlds that all starve

        def average(values: Tensor) -> Tensor:
            return (values * batch.credited).sum() / count

        ratio = (log_prob - batch.log_prob).exp()
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        surrogate = torch.minimum(ratio * batch.advantage, clipped * batch.advantage)

        value = self.critic(batch.critic_inputs)
        error = (value - batch.target).square()
        if config.value_clip is not None:
            limit = config.value_clip * self.critic.scale
            near = batch.value + (value - batch.value).clamp(-limit, limit)
            error = torch.maximum(error, (near - batch.target).square())

        with torch.no_grad():
            divergence = gaussian.kl_divergence(rollout.mean, batch.behaviour_log_std, mean, log_std)
            kl = (divergence * executed).sum() / counts.executed.clamp(min=1)
        return Losses(
            policy=-average(surrogate),
            value=(error * batch.valued).sum() / counts.valued / self.critic.scale**2,
            entropy=gaussian.entropy(log_std) * executed.sum() / count,
            kl=kl,
            clip_fraction=average((ratio.detach() - 1.0).abs() > config.clip),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs, as live tensors and plain numbers."""
        return {
            "policy": self.policy.state_dict(),
            "critic": self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "recent_actions": self.recent.state_dict(),
            "generator": self.generator.get_state(),
            "iteration": self.iteration,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, bit for bit."""
        self.policy.load_state_dict(state["policy"])
        self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.recent.load_state_dict(state["recent_actions"])
        self.generator.set_state(state["generator"])
        self.iteration = state["iteration"]

    def _spread_time_outs(self) -> None:
        """Cut every world's first episode at another time: an iteration must see all parts of episodes."""
        state = self.env.state_dict()
        length = self.env.spec.episode_ticks
        state["tick"] = torch.randint(length, (self.env.num_worlds,), generator=self.generator)
        self.env.load_state_dict(state)

    @torch.no_grad()
    def _pass_states(self) -> None:
        """Let a share of the worlds go on from another world's memory (arXiv 2507.02782)."""
        if not self.config.state_passing:
            return
        worlds, scheduler = self.env.num_worlds, self.scheduler
        source = torch.randperm(worlds, generator=self.generator)
        passed = torch.rand(worlds, generator=self.generator) < self.config.state_passing
        source = torch.where(passed, source, torch.arange(worlds)).to(self.env.device)
        scheduler.h = self.policy.with_memory_of(scheduler.h, scheduler.h[source])

    @torch.no_grad()
    def _bound_std(self) -> None:
        """Let exploration fall with the ticks."""
        config, initial = self.config, self.policy.config.initial_std
        if config.final_std is not None:
            share = min(1.0, self.ticks / config.final_std_ticks)
            bound = initial + share * (config.final_std - initial)
            self.policy.log_std.clamp_(max=math.log(bound))

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [
            (f"{owner}.{name}", parameter)
            for owner, module in (("policy", self.policy), ("critic", self.critic))
            for name, parameter in module.named_parameters()
        ]

    def _differentiate(self, batch: Batch, worlds: Tensor) -> Losses:
        """The losses of a minibatch, and their gradients in the parameters; threads share its worlds.

        An operation takes one thread: at these sizes two would wait for each other more than they gain.
        """
        counts = batch.counts(worlds)

        def share(part: Tensor) -> tuple[Losses, tuple[Tensor | None, ...]]:
            losses = self.losses(batch.worlds(part), counts)
            total = losses.policy + losses.value - self.config.entropy_bonus * losses.entropy
            return losses, torch.autograd.grad(total, self.parameters, allow_unused=True)

        split = worlds.chunk(self.threads if worlds.device.type == "cpu" else 1)
        shares = list((self._pool.map if len(split) > 1 else map)(share, split))
        losses, gradients = (list(zip(*values, strict=True)) for values in zip(*shares, strict=True))
        for parameter, parts in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if parts[0] is None else torch.stack(parts).sum(0)
        return Losses(*(torch.stack(values).detach().sum(0) for values in losses))

    def _descend(self, losses: Losses) -> None:
        require_finite("policy loss", losses.policy)
        require_finite("value loss", losses.value)
        for module in (self.policy, self.critic):
            parameters = [parameter for parameter in module.parameters() if parameter.grad is not None]
            norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
            if not norm.isfinite():
                self._name_gradient()
            clip_grads_with_norm_(parameters, self.config.max_grad_norm, norm)
        self.optimizer.step()

    def _name_gradient(self) -> None:
        for name, parameter in self._named_parameters():
            if parameter.grad is not None:
                require_finite(f"gradient of {name!r}", parameter.grad)
        raise NonFiniteError("gradient norm")

    def _adapt_learning_rate(self, kl: float) -> None:
        group = self.optimizer.param_groups[0]
        if kl > 2.0 * self.config.target_kl:
            group["lr"] = max(group["lr"] / LEARNING_RATE_STEP, MIN_LEARNING_RATE)
        elif 0.0 < kl < 0.5 * self.config.target_kl:
            group["lr"] = min(group["lr"] * LEARNING_RATE_STEP, self.config.max_learning_rate)

    def _update_normalizers(self, batch: Batch) -> None:
        rollout = batch.rollout
        self.policy.normalizer.update(self.policy.features(rollout.sources)[rollout.decided])
        self.critic.normalizer.update(rollout.states[rollout.valid])
        self.critic.adapt_scale(batch.target[batch.valued])


def _require_fit(env: Worlds, policy: Policy, config: PPOConfig) -> None:
    """Raise where the worlds do not have what the policy reads, or credit is not defined."""
    for source in policy.spec.sources:
        if source not in env.spec.sources:
            raise AndanteError(
                f"source {source.name!r} of the policy: not in the environment, whose sources are "
                f"{', '.join(source.name for source in env.spec.sources)}; make it from the policy's spec"
            )
    told = [source.history for source in policy.spec.sources if source.kind == "committed_actions"]
    delay = max(env.randomization.ticks("inference_delay", 0))
    if told and not delay <= max(told) <= policy.chunk_size:
        raise AndanteError(
            f"committed_actions must be from the inference delay, {delay}, to the chunk size, "
            f"{policy.chunk_size}, found {max(told)}"
        )
    if env.timing is not None and (config.credit == "chunk" or policy.decoder.ties):
        what = "credit chunk" if config.credit == "chunk" else f"decoder {policy.config.decoder}"
        raise AndanteError(
            f"{what}: not defined where decisions are not on time ({', '.join(env.timing.fields)})"
        )

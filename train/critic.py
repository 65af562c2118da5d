"""The critic: a feed-forward value network on the true state and on what has been committed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .normalizer import RunningNormalizer

SCALE_MEMORY = 0.8
"""Weight of the past, per iteration, in the mean square of the returns."""
MIN_SCALE = 1e-3


class Critic(nn.Module):
    """V(true state, plan, phase / H, s / H), and d / H where decisions may be late.

    Between two decisions the observation is latched, so the process at tick i of a chunk continues
    with the chunk's distribution: the plan is its *means* for the ticks i .. s-1, zero padded to H,
    with a mask. V is the baseline of tick i and the bootstrap of the ticks before it, and therefore
    must not see the action that was sampled at i. When a decision is due (phase 0) nothing is
    committed, and the plan is empty. With an inference delay the plan reaches to the end of the newest
    decision's part, whether or not it acts already, and to the delay where the next one is due.

    The network's output is multiplied by `scale`, the running size of the returns, so that small
    rewards are learned as well as large ones (PopArt, arXiv 1602.07714).

    Sizes: C true state, H chunk, s execution horizon, A actions.
    """

    window: Tensor
    committed: Tensor
    timing: Tensor
    scale: Tensor

    def __init__(
        self,
        state_size: int,
        action_size: int,
        chunk_size: int,
        execution_horizon: int,
        hidden: int,
        timed: bool = False,
    ) -> None:
        """`timed`: s and d are of each world, see `at_tick`; otherwise s is `execution_horizon`, d is 0."""
        super().__init__()
        self.state_size = state_size
        self.plan_size = chunk_size * action_size
        self.normalizer = RunningNormalizer(state_size)
        self.chunk_size = chunk_size
        width = state_size + self.plan_size + chunk_size + (3 if timed else 2)
        self.trunk = nn.Sequential(nn.Linear(width, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.head = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.head.weight.mul_(0.01)
        self.register_buffer("scale", torch.ones(()))
        s, phase = execution_horizon, torch.arange(execution_horizon)
        tick = phase[:, None] + torch.arange(chunk_size)
        committed = (tick < s) & (phase[:, None] > 0)
        self.register_buffer("window", torch.where(committed, tick, s), persistent=False)
        self.register_buffer("committed", committed.float(), persistent=False)
        timing = torch.stack([phase / chunk_size, torch.full((s,), s / chunk_size)], -1)
        self.register_buffer("timing", timing, persistent=False)

    def in_chunk(self, state: Tensor, mean: Tensor) -> Tensor:
        """Inputs at every phase: state [..., s, C] before each tick, mean [..., s, A] -> [..., s, X]."""
        padded = torch.cat([mean.clamp(-1.0, 1.0), torch.zeros_like(mean[..., :1, :])], -2)
        plan = padded[..., self.window, :].flatten(-2)
        shape = (*state.shape[:-1], -1)
        return torch.cat([state, plan, self.committed.expand(shape), self.timing.expand(shape)], -1)

    def undecided(self, state: Tensor) -> Tensor:
        """Inputs when a decision is due: state [..., C] -> [..., X]."""
        plan = state.new_zeros(*state.shape[:-1], self.plan_size)
        shape = (*state.shape[:-1], -1)
        return torch.cat([state, plan, self.committed[0].expand(shape), self.timing[0].expand(shape)], -1)

    def at_tick(
        self, state: Tensor, mean: Tensor, planned: Tensor, phase: Tensor, horizon: Tensor, delay: Tensor
    ) -> Tensor:
        """Inputs of worlds with a time of their own, at one tick [B, X].

        Args:
            state: before the tick [B, C].
            mean: means of what is planned for this tick and the next ones [B, H, A].
            planned: bool [B, H]: for which of them there is a plan.
            phase: ticks since the first decision was due, int64 [B].
            horizon: s [B].
            delay: d [B].
        """
        reach = torch.where(phase % horizon == 0, 0, horizon - phase % horizon) + delay
        committed = planned & (torch.arange(self.chunk_size, device=state.device) < reach[:, None])
        plan = (mean.clamp(-1.0, 1.0) * committed[..., None]).flatten(-2)
        timing = torch.stack((phase % horizon, horizon, delay), -1) / self.chunk_size
        return torch.cat((state, plan, committed.float(), timing.float()), -1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [..., X] -> values [...]."""
        state, rest = inputs[..., : self.state_size], inputs[..., self.state_size :]
        features = self.trunk(torch.cat([self.normalizer(state), rest], -1))
        values: Tensor = self.scale * self.head(features).squeeze(-1)
        return values

    @torch.no_grad()
    def adapt_scale(self, target: Tensor) -> None:
        """Follow the size of value targets [N] seen in one iteration; the values stay what they were."""
        new = (SCALE_MEMORY * self.scale.square() + (1.0 - SCALE_MEMORY) * target.square().mean()).sqrt()
        new.clamp_(min=MIN_SCALE)
        self.head.weight.mul_(self.scale / new)
        self.head.bias.mul_(self.scale / new)
        self.scale.copy_(new)

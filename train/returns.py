"""Advantages and returns, per tick or per chunk."""

from __future__ import annotations

import torch
from torch import Tensor


def advantages_per_tick(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    value: Tensor,
    next_value: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimation (arXiv 1506.02438) over ticks; all [K, B, s] -> [K, B, s].

    `next_value` is the value of the state that a tick led to, the true final state at an end: it is used
    at time-outs, not at terminations, and nothing is carried across either. Ticks that are not valid get 0.
    """
    decisions = len(reward)
    # Time first: [K * s, B].
    reward, terminated, truncated, valid, value, next_value = (
        tensor.transpose(1, 2).flatten(0, 1)
        for tensor in (reward, terminated, truncated, valid, value, next_value)
    )
    delta = reward + gamma * next_value * ~terminated - value
    carry = torch.where(terminated | truncated, torch.zeros_like(value), gamma * gae_lambda)
    advantage = torch.zeros_like(reward)
    following = torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        following = torch.where(valid[t], delta[t] + carry[t] * following, 0.0)
        advantage[t] = following
    return advantage.reshape(decisions, -1, advantage.shape[-1]).transpose(1, 2)


def advantages_per_chunk(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    value: Tensor,
    next_value: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Semi-Markov advantages: a decision is one action that takes k ticks (Sutton, Precup, Singh 1999).

    R = sum gamma^i r_i, bootstrap gamma^k V, decay (gamma lambda)^k; k counts the ticks lived through.
    Per tick [K, B, s]: reward, terminated, truncated, valid. Per decision [K, B]: value, next_value (of
    the state that it led to, the true final state at an end) -> [K, B].
    """
    ticks = valid.sum(-1).to(value.dtype)
    discount = gamma ** torch.arange(reward.shape[-1], dtype=value.dtype, device=value.device)
    chunk_return = (reward * discount * valid).sum(-1)
    terminal = terminated.any(-1)
    delta = chunk_return + gamma**ticks * next_value * ~terminal - value
    carry = (gamma * gae_lambda) ** ticks * ~(terminal | truncated.any(-1))
    advantage = torch.zeros_like(value)
    following = torch.zeros_like(value[0])
    for k in reversed(range(len(value))):
        following = delta[k] + carry[k] * following
        advantage[k] = following
    return advantage

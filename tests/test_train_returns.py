"""Advantages against brute force: every phase of an end, chunks of several lengths."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from andante.train.returns import advantages_per_chunk, advantages_per_tick

GAMMA, LAMBDA = 0.9, 0.8


def table(decisions: int, worlds: int, s: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rewards, terminations, time-outs and validity: about one chunk in three ends, at any of its ticks."""
    generator = torch.Generator().manual_seed(seed)
    shape = (decisions, worlds, s)
    terminated, truncated, valid = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
    for k in range(decisions):
        for b in range(worlds):
            kind, phase = torch.randint(6, (), generator=generator), torch.randint(s, (), generator=generator)
            last = int(phase) if kind < 2 else s - 1
            valid[k, b, : last + 1] = True
            if kind < 2:
                (terminated if kind == 0 else truncated)[k, b, last] = True
    reward = torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.where(valid, reward, 0.0), terminated, truncated, valid


@pytest.mark.parametrize("s", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_tick_advantages_equal_the_sum_over_the_rest_of_the_episode(s, seed):
    reward, terminated, truncated, valid = ends = table(7, 5, s, seed)
    value, next_value = torch.randn(2, *reward.shape, dtype=torch.float64)
    found = advantages_per_tick(*ends, value, next_value, GAMMA, LAMBDA)
    for b in range(5):
        lived = [(k, b, i) for k in range(7) for i in range(s) if valid[k, b, i]]
        for start, tick in enumerate(lived):
            expected, weight = 0.0, 1.0
            for later in lived[start:]:
                bootstrap = 0.0 if terminated[later] else GAMMA * next_value[later]
                expected += weight * (reward[later] + bootstrap - value[later])
                weight *= GAMMA * LAMBDA
                if terminated[later] or truncated[later]:
                    break
            assert found[tick] == pytest.approx(float(expected), abs=1e-12)
    assert (found[~valid] == 0).all()


@pytest.mark.parametrize("s", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_chunk_advantages_equal_the_semi_markov_sum(s, seed):
    reward, terminated, truncated, valid = ends = table(7, 5, s, seed)
    value, next_value = torch.randn(2, 7, 5, dtype=torch.float64)
    found = advantages_per_chunk(*ends, value, next_value, GAMMA, LAMBDA)
    for b in range(5):
        for start in range(7):
            expected, weight = 0.0, 1.0
            for k in range(start, 7):
                ticks = [i for i in range(s) if valid[k, b, i]]
                chunk = sum(GAMMA**i * float(reward[k, b, i]) for i in ticks)
                if not terminated[k, b].any():
                    chunk += GAMMA ** len(ticks) * float(next_value[k, b])
                expected += weight * (chunk - float(value[k, b]))
                weight *= (GAMMA * LAMBDA) ** len(ticks)
                if terminated[k, b].any() or truncated[k, b].any():
                    break
            assert found[start, b] == pytest.approx(expected, abs=1e-12)


def test_both_credits_agree_on_single_ticks():
    ends = table(9, 4, 1, 3)
    value, next_value = torch.randn(2, 9, 4, 1, dtype=torch.float64)
    per_tick = advantages_per_tick(*ends, value, next_value, GAMMA, LAMBDA)
    per_chunk = advantages_per_chunk(*ends, value[..., 0], next_value[..., 0], GAMMA, LAMBDA)
    torch.testing.assert_close(per_tick[..., 0], per_chunk, atol=1e-12, rtol=0)


def test_a_time_out_is_bootstrapped_and_a_termination_is_not():
    one = torch.ones(1, 1, 1, dtype=torch.bool)
    zero, value, next_value = torch.zeros(1, 1, 1), torch.tensor([[[2.0]]]), torch.tensor([[[10.0]]])
    timed_out = advantages_per_tick(zero, ~one, one, one, value, next_value, GAMMA, LAMBDA)
    ended = advantages_per_tick(zero, one, ~one, one, value, next_value, GAMMA, LAMBDA)
    assert timed_out.item() == pytest.approx(GAMMA * 10 - 2)
    assert ended.item() == pytest.approx(-2)

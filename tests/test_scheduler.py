"""The chunk scheduler against one world at a time, and nothing of an old chunk after a reset."""

from __future__ import annotations

import pytest
import torch

from andante.sim import make
from andante.train import Policy
from andante.train.scheduler import ChunkScheduler

TASK = "cartpole-swingup-blind"
WORLDS = 6


def make_scheduler(chunk_size: int = 5, horizon: int | None = None, worlds: int = WORLDS) -> ChunkScheduler:
    torch.manual_seed(0)
    env = make(TASK, num_worlds=worlds, seed=3, threads=1)
    policy = Policy.for_env(env, hidden_size=16, chunk_size=chunk_size, execution_horizon=horizon)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(200.0)  # untrained ones hardly move
    return ChunkScheduler(env, policy)


def end_at(scheduler: ChunkScheduler, ticks_left: torch.Tensor) -> None:
    """Let each world run out of time after so many ticks."""
    state = scheduler.env.state_dict()
    state["tick"] = scheduler.env.spec.episode_ticks - ticks_left
    scheduler.env.load_state_dict(state)


def sources_of(observation, world):
    return {name: value[world : world + 1] for name, value in observation.sources.items()}


@pytest.mark.parametrize(("chunk_size", "horizon"), [(5, 5), (5, 3), (4, 1), (1, 1)])
def test_equals_one_world_at_a_time_tick_by_tick(chunk_size, horizon):
    scheduler = make_scheduler(chunk_size, horizon)
    ends = torch.tensor([4, 7, 8, 11, 15, 500])
    end_at(scheduler, ends)
    chunks = [scheduler.advance() for _ in range(40 // horizon)]
    for world in range(WORLDS):
        found = torch.cat(
            [chunk.outcome.reward[world][chunk.outcome.valid[world]] for chunk in chunks]
        ).tolist()
        single = make_scheduler(chunk_size, horizon)
        end_at(single, ends)
        env, policy, observation = single.env, single.policy, single.observation
        expected, phase, h, plan = [], 0, policy.initial_state(1), None
        while len(expected) < len(found):
            if phase == 0:
                with torch.no_grad():
                    mean, h = policy.decide(sources_of(observation, world), h)
                    plan = policy.decode(mean)
            outcome = env.step(plan[:, phase : phase + 1].expand(WORLDS, -1, -1))
            observation = outcome.observation
            expected.append(outcome.reward[world].item())
            phase = (phase + 1) % horizon
            if outcome.done[world]:
                phase, h = 0, policy.initial_state(1)
        assert found == pytest.approx(expected, abs=1e-5)
    assert sum(float(chunk.outcome.truncated.sum()) for chunk in chunks) >= 5


@pytest.mark.parametrize("horizon", [5, 3])
def test_nothing_of_the_old_chunk_survives_a_reset_at_any_phase(horizon):
    scheduler = make_scheduler(5, horizon, worlds=horizon + 1)
    for _ in range(4):
        scheduler.advance()
    end_at(scheduler, torch.tensor([*range(1, horizon + 1), 400]))
    ending = scheduler.advance().outcome
    assert ending.truncated[:-1].int().argmax(1).tolist() == list(range(horizon))
    assert ending.done.tolist() == [True] * horizon + [False]
    assert (ending.valid.sum(1) == torch.tensor([*range(1, horizon + 1), horizon])).all()

    fresh = make_scheduler(5, horizon, worlds=horizon + 1)
    saved = scheduler.state_dict()
    fresh.load_state_dict(
        {**saved, "h": torch.full_like(saved["h"], torch.nan), "reset": ~saved["reset"] | True}
    )
    after, without_past = scheduler.advance(), fresh.advance()
    assert after.reset.tolist() == [True] * horizon + [False]
    assert torch.equal(after.u[:-1], without_past.u[:-1])
    assert torch.equal(after.outcome.critic[:-1], without_past.outcome.critic[:-1])
    assert not torch.equal(after.u[-1], without_past.u[-1])


def test_restart_begins_everywhere_from_the_initial_state():
    scheduler = make_scheduler()
    for _ in range(3):
        scheduler.advance()
    assert scheduler.h.abs().max() > 0
    scheduler.restart()
    assert scheduler.h.abs().max() == 0
    assert scheduler.advance().reset.all()


def test_only_the_horizon_is_executed_and_noise_goes_where_it_is_executed():
    scheduler = make_scheduler(5, 2)
    noise = torch.randn(WORLDS, 2, 1)
    decision = scheduler.advance(noise)
    assert decision.outcome.reward.shape == (WORLDS, 2)
    torch.testing.assert_close(decision.u, decision.mean + scheduler.policy.log_std.exp() * noise)

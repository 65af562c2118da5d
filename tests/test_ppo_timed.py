"""PPO in worlds whose decisions are late, unequal or lost: every executed action keeps its own credit."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.spec.randomization import Choice, Randomization, Uniform
from andante.train import PPO, PolicyConfig, PPOConfig, TrainConfig
from andante.train.rollout import Rollout
from andante.train.timed_rollout import TimedRollout

TASK = "cartpole-swingup-blind"
LATE = Randomization(
    inference_delay=Uniform(0, 2),
    execution_horizon=Choice((2, 3, 4)),
    dropped_decisions=0.1,
    starvation=0.05,
    starvation_ticks=Uniform(3, 9),
)
ON_TIME = Randomization(inference_delay=0)


def make_ppo(randomization: Randomization, horizon: int = 4, **config) -> PPO:
    options = {"decisions": 12, "minibatches": 2, "critic_size": 16, **config}
    policy = PolicyConfig(hidden_size=16, chunk_size=6, execution_horizon=horizon, committed_actions=2)
    ppo = PPO.from_config(
        TrainConfig(
            task=TASK,
            ticks=10_000,
            num_worlds=8,
            seed=1,
            policy=policy,
            ppo=PPOConfig(**options),
            randomization=randomization,
        )
    )
    state = ppo.env.state_dict()
    state["tick"] = ppo.env.spec.episode_ticks - torch.arange(3, 19, 2)  # time-outs at every phase
    ppo.env.load_state_dict(state)
    return ppo


def test_worlds_on_time_are_played_as_whole_chunks_are(monkeypatch):
    whole, ticks = make_ppo(Randomization()), make_ppo(ON_TIME)
    noise, worlds = torch.randn(12, 8, 6, 1), torch.arange(8)
    monkeypatch.setattr("andante.train.rollout.torch.randn", lambda *_, **__: noise[:, :, :4])
    whole.collect()
    monkeypatch.undo()
    expected = whole.rollout
    assert isinstance(expected, Rollout)
    lived = expected.valid.sum(2)
    # Every decision gets the noise that it had, whenever it is made.
    phase, number = torch.zeros(8, dtype=torch.int64), torch.zeros(8, dtype=torch.int64)

    def drawn(*_, **__):
        now = number.clamp(max=11)
        phase.add_(1)
        over = phase >= lived[now, worlds]
        number.add_(over)
        phase.masked_fill_(over, 0)
        return noise[now, worlds]

    monkeypatch.setattr("andante.train.timed_rollout.torch.randn", drawn)
    ticks.collect()
    found = ticks.rollout
    assert isinstance(found, TimedRollout)
    for world in range(8):
        valid = expected.valid[:, world]
        assert valid.sum() >= 40
        for name in ("u", "mean", "reward", "terminated", "truncated"):
            torch.testing.assert_close(
                getattr(found, name)[: valid.sum(), world, 0],
                getattr(expected, name)[:, world][valid],
                atol=1e-4,
                rtol=1e-4,
            )


@pytest.mark.parametrize("randomization", [LATE, ON_TIME])
def test_first_epoch_ratios_are_one_also_from_the_carried_state(randomization):
    ppo = make_ppo(randomization, state_passing=0.5)
    for _ in range(3):
        ppo.collect()
        rollout = ppo.rollout
        batch = ppo.prepare(rollout)
        losses = ppo.losses(batch)
        means = ppo.policy.scan(rollout.sources, rollout.reset, rollout.decided, rollout.h0)
        executed = rollout.executed
        torch.testing.assert_close(
            rollout.chosen(means)[executed], rollout.mean[executed], atol=1e-5, rtol=1e-5
        )
        assert abs(losses.kl.item()) < 1e-6 and losses.clip_fraction == 0
        assert executed.float().mean() > 0.6
        assert (rollout.decided.sum(0).unique().numel() > 1) == (randomization is LATE)
        ppo.iterate()


def test_advantages_follow_the_ticks_of_a_world_whoever_decided():
    ppo = make_ppo(LATE, gamma=0.9, gae_lambda=0.8)
    ppo.collect()
    rollout, batch = ppo.rollout, ppo.prepare(ppo.rollout)
    assert rollout.truncated.any()
    with torch.no_grad():
        after = ppo.critic(rollout.next_inputs)[..., 0]
    for world in range(8):
        following = 0.0
        for t in reversed(range(len(rollout.reward))):
            reward, end, out = (
                rollout.reward[t, world, 0].item(),
                bool(rollout.terminated[t, world, 0]),
                bool(rollout.truncated[t, world, 0]),
            )
            value = batch.value[t, world, 0].item()
            delta = reward + (0.0 if end else 0.9 * after[t, world].item()) - value
            following = delta + (0.0 if end or out else 0.72 * following)
            assert batch.target[t, world, 0].item() == pytest.approx(following + value, abs=1e-4)


def test_values_go_on_from_tick_to_tick_but_not_over_an_end():
    ppo = make_ppo(LATE)
    ppo.collect()
    rollout = ppo.rollout
    ended = (rollout.terminated | rollout.truncated)[:-1, :, 0]
    same = (rollout.next_inputs[:-1, :, 0] - rollout.inputs[1:, :, 0]).abs().amax(-1) < 1e-5
    assert ended.any() and same[~ended].all() and not same[ended].any()


def test_actions_of_decisions_before_have_no_gradient():
    ppo = make_ppo(LATE)
    ppo.iterate()
    ppo.collect()
    rollout, batch = ppo.rollout, ppo.prepare(ppo.rollout)
    pending = rollout.decision[0] < 0
    assert pending.any()
    losses = ppo.losses(batch)
    changed = dataclasses.replace(rollout, u=rollout.u + 3.0 * ~rollout.executed[..., None])
    assert torch.equal(losses.policy, ppo.losses(dataclasses.replace(batch, rollout=changed)).policy)


def test_the_policy_is_told_what_it_is_committed_to():
    ppo = make_ppo(Randomization(inference_delay=2))
    ppo.collect()
    rollout = ppo.rollout
    told = rollout.sources["committed_actions"]
    checked = 0
    for world in range(8):
        at = [t for t in range(48) if (rollout.index[t, world] == 2) and rollout.decision[t, world] >= 0]
        for t in at:
            k = int(rollout.decision[t, world])
            if rollout.reset[k, world]:
                assert torch.equal(told[k, world], torch.zeros(2, 1))
            elif t >= 2:
                played = ppo.policy.decode(rollout.u[t - 2 : t, world, 0])
                torch.testing.assert_close(told[k, world], played)
                checked += 1
    assert checked > 40


def test_resuming_with_pending_chunks_equals_no_interruption():
    one, other = make_ppo(LATE), make_ppo(LATE)
    for _ in range(2):
        one.iterate()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert (one.scheduler._plan.planned & (one.scheduler._phase > 0)[:, None]).any()
    assert one.iterate() == other.iterate()
    for name, value in one.policy.state_dict().items():
        assert torch.equal(value, other.policy.state_dict()[name]), name


@pytest.mark.parametrize(
    ("randomization", "found"),
    [
        (Randomization(inference_delay=2, execution_horizon=5), "d up to 2, execution_horizon s from 5 to 5"),
        (Randomization(inference_delay=2, execution_horizon=1), "d up to 2, execution_horizon s from 1 to 1"),
        (Randomization(execution_horizon=Uniform(1, 7)), "d up to 0, execution_horizon s from 1 to 7"),
    ],
)
def test_an_impossible_horizon_is_one_line(randomization, found):
    with pytest.raises(AndanteError, match=f"^impossible horizon: inference_delay {found}.*, 6, must hold$"):
        make_ppo(randomization)


@pytest.mark.parametrize(
    ("policy", "config", "message"),
    [
        (PolicyConfig(chunk_size=6, execution_horizon=3, decoder="hold"), {}, "decoder hold: not defined"),
        (PolicyConfig(chunk_size=6, execution_horizon=3), {"credit": "chunk"}, "credit chunk: not defined"),
    ],
)
def test_what_is_not_defined_for_late_decisions_is_one_line(policy, config, message):
    run = TrainConfig(
        task=TASK,
        ticks=1,
        num_worlds=8,
        policy=policy,
        ppo=PPOConfig(**config),
        randomization=Randomization(inference_delay=1),
    )
    with pytest.raises(AndanteError, match=message):
        PPO.from_config(run)


def test_an_environment_without_what_the_policy_reads_is_named():
    from andante.train import Policy

    env = make(TASK, 8)
    policy = Policy.for_env(env, committed_actions=2)
    with pytest.raises(AndanteError, match=r"^source 'committed_actions' of the policy: not in"):
        PPO(env, policy)
    assert PPO(make(policy.spec, 8), policy).ticks == 0


def test_rough_motion_costs_in_worlds_of_their_own_time_too():
    plain, smooth = make_ppo(LATE), make_ppo(LATE, smoothness=(0.3, 0.2, 0.1))
    recent = torch.zeros(8, 3, 1)
    for _ in range(2):
        plain.collect()
        terms = smooth.collect()
        assert torch.equal(plain.rollout.u, smooth.rollout.u)
        costs = []
        for world in range(8):
            stream = recent[world]
            for t in range(48):
                unit = smooth.policy.decode.scale
                action = smooth.rollout.actions[t, world] / unit
                stream = torch.cat([stream, action])[-4:]
                one, two, three = (stream.diff(n=n, dim=0)[-1].square().mean() for n in (1, 2, 3))
                costs.append((0.3 * one + 0.2 * two + 0.1 * three).item())
                found = (plain.rollout.reward - smooth.rollout.reward)[t, world, 0].item()
                assert found == pytest.approx(costs[-1], abs=1e-5, rel=1e-4)
                if smooth.rollout.terminated[t, world, 0] or smooth.rollout.truncated[t, world, 0]:
                    stream = torch.zeros(3, 1)
            recent[world] = stream[-3:]
        assert terms["smoothness"] == pytest.approx(-sum(costs) / len(costs), rel=1e-3)


def test_the_critic_sees_the_recent_actions_in_worlds_of_their_own_time_too():
    ppo = make_ppo(LATE, smoothness=(0.0, 0.1, 0.0))
    size, expected = ppo.env.critic_size, torch.zeros(8, 2)
    for _ in range(2):
        ppo.collect()
        rollout = ppo.rollout
        for t in range(48):
            for states in (rollout.states, rollout.inputs):
                torch.testing.assert_close(states[t, :, 0, size : size + 2], expected)
            action = rollout.actions[t, :, 0] / ppo.policy.decode.scale
            expected = torch.cat([expected, action], 1)[:, 1:]
            torch.testing.assert_close(rollout.next_inputs[t, :, 0, size : size + 2], expected)
            expected[rollout.terminated[t, :, 0] | rollout.truncated[t, :, 0]] = 0.0
        assert (rollout.terminated | rollout.truncated).any()


def test_worlds_in_which_no_decision_comes_through_teach_values_alone():
    ppo = make_ppo(LATE)
    ppo.collect()
    nobody = torch.full_like(ppo.rollout.decision, -1)
    losses = ppo.losses(ppo.prepare(dataclasses.replace(ppo.rollout, decision=nobody)))
    assert losses.policy == losses.entropy == losses.kl == 0.0 and losses.value > 0.0


def test_resuming_goes_on_from_the_last_executed_actions():
    one, other = make_ppo(LATE, smoothness=(1.0, 1.0, 1.0)), make_ppo(LATE, smoothness=(1.0, 1.0, 1.0))
    one.iterate()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    one.collect()
    other.collect()
    assert torch.equal(one.rollout.reward, other.rollout.reward)


def test_the_critic_sees_no_further_than_what_is_committed():
    critic = make_ppo(LATE).critic
    mean, everything = torch.full((5, 6, 1), 0.5), torch.ones(5, 6, dtype=torch.bool)
    phase, horizon, delay = (
        torch.tensor([0, 0, 1, 3, 6]),
        torch.tensor([4] * 5),
        torch.tensor([0, 2, 0, 1, 2]),
    )
    inputs = critic.at_tick(torch.zeros(5, critic.state_size), mean, everything, phase, horizon, delay)
    plan = inputs[:, critic.state_size :]
    reach = [0, 2, 3, 2, 4]
    for row, ticks in zip(plan, reach, strict=True):
        assert row[:6].tolist() == [0.5] * ticks + [0.0] * (6 - ticks)
        assert row[6:12].tolist() == [1.0] * ticks + [0.0] * (6 - ticks)
    torch.testing.assert_close(plan[:, 12:], torch.stack((phase % 4, horizon, delay), 1) / 6)


def test_a_minibatch_without_a_decision_teaches_nothing():
    ppo = make_ppo(Randomization(starvation=0.5, starvation_ticks=200), minibatches=8)
    for _ in range(3):
        ppo.iterate()


def test_a_policy_must_be_told_as_far_as_answers_are_late():
    with pytest.raises(AndanteError, match="committed_actions must be from the inference delay, 3"):
        PPO.from_config(
            TrainConfig(
                task=TASK,
                ticks=1,
                num_worlds=8,
                policy=PolicyConfig(chunk_size=8, execution_horizon=4, committed_actions=2),
                randomization=Randomization(inference_delay=3),
            )
        )


def test_sources_of_actions_are_made_longer_never_shorter():
    from andante.sim.spec import get_spec
    from andante.sim.spec.actions import with_actions

    spec = with_actions(get_spec(TASK), history=3)
    names = {source.kind: source for source in spec.sources}
    assert names["executed_action"].history == 3
    assert with_actions(spec, history=2) == spec
    assert {s.kind: s.history for s in with_actions(spec, 4, 2).sources}["executed_action"] == 4

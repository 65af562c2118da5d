"""Chunked PPO: with H = 1 it is the textbook's, and its parts are what they claim to be."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from andante.sim import make
from andante.train import PPO, Policy, PPOConfig
from andante.train.ppo import Batch
from andante.train.rollout import Rollout, collect

TASK = "cartpole-swingup-blind"


def make_ppo(chunk_size: int = 4, horizon: int | None = None, memory: str = "gru", **config) -> PPO:
    torch.manual_seed(0)
    env = make(TASK, num_worlds=8, seed=1, threads=1)
    policy = Policy.for_env(
        env, hidden_size=16, chunk_size=chunk_size, execution_horizon=horizon, memory=memory
    )
    ppo = PPO(env, policy, PPOConfig(decisions=12, minibatches=2, critic_size=16, **config))
    state = env.state_dict()
    state["tick"] = env.spec.episode_ticks - torch.arange(3, 19, 2)  # time-outs at every phase
    env.load_state_dict(state)
    return ppo


def collect_double(ppo: PPO) -> Rollout:
    """A rollout with terminations and time-outs, and everything in float64."""
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    rollout = ppo.rollout
    rollout.terminated[5, 2, 0] = True
    rollout.truncated[5, 2] = False
    rollout.valid[5, 2, 1:] = False
    rollout.reset[6, 2] = True
    ppo.policy.double()
    ppo.critic.double()

    def convert(value):
        if isinstance(value, dict):
            return {name: convert(part) for name, part in value.items()}
        return value.double() if value.is_floating_point() else value

    return dataclasses.replace(rollout, **{name: convert(value) for name, value in vars(rollout).items()})


def gradients(ppo: PPO, loss: Tensor) -> list[Tensor]:
    parameters = [*ppo.policy.parameters(), *ppo.critic.parameters()]
    return list(torch.autograd.grad(loss, parameters, materialize_grads=True, retain_graph=True))


@pytest.mark.parametrize("memory", ["gru", "mlp"])
@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_single_tick_chunks_are_textbook_recurrent_ppo(credit, memory):
    ppo = make_ppo(chunk_size=1, memory=memory, credit=credit, value_clip=0.1)
    rollout = collect_double(ppo)
    assert rollout.terminated.any() and rollout.truncated.any()
    config, policy = ppo.config, ppo.policy
    gamma, decay = config.gamma, config.gamma * config.gae_lambda
    reward, terminated, truncated = (
        rollout.reward[..., 0],
        rollout.terminated[..., 0],
        rollout.truncated[..., 0],
    )
    steps, worlds = reward.shape

    def value_of(state: Tensor) -> Tensor:
        """No plan, phase 0, horizon 1 of 1."""
        return ppo.critic(
            torch.cat([state, torch.zeros(*state.shape[:-1], 3), torch.ones_like(state[..., :1])], -1)
        )

    with torch.no_grad():
        old_value, next_value = value_of(rollout.critic[:, :, 0]), value_of(rollout.critic[:, :, 1])
        advantage = torch.zeros_like(reward)
        for b in range(worlds):
            following = 0.0
            for t in reversed(range(steps)):
                bootstrap = 0.0 if terminated[t, b] else gamma * next_value[t, b]
                carried = 0.0 if terminated[t, b] or truncated[t, b] else decay * following
                following = reward[t, b] + bootstrap - old_value[t, b] + carried
                advantage[t, b] = following
        target = advantage + old_value
        normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    batch = ppo.prepare(rollout)
    torch.testing.assert_close(batch.advantage[..., 0], normalized, atol=1e-6, rtol=0)
    torch.testing.assert_close(batch.target[..., 0], target, atol=1e-6, rtol=0)

    with torch.no_grad():  # away from the behaviour policy, so that clipping matters
        for parameter in policy.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
        for parameter in ppo.critic.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    std = policy.log_std.exp()

    def log_density(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, std).log_prob(action).sum(-1)

    old_log_prob = log_density(rollout.u[:, :, 0], rollout.mean[:, :, 0], batch.behaviour_log_std.exp())
    policy_terms, value_terms = [], []
    h = rollout.h0
    for t in range(steps):
        h = torch.where(rollout.reset[t, :, None], policy.initial_state(worlds).double(), h)
        mean, h = policy.decide({name: value[t] for name, value in rollout.sources.items()}, h)
        ratio = (log_density(rollout.u[t, :, 0], mean[:, 0], std) - old_log_prob[t]).exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_terms.append(torch.min(ratio * normalized[t], clipped * normalized[t]))
        value = value_of(rollout.critic[t, :, 0])
        limit = config.value_clip * ppo.critic.scale
        near = old_value[t] + (value - old_value[t]).clamp(-limit, limit)
        value_terms.append(torch.max((value - target[t]) ** 2, (near - target[t]) ** 2))
    policy_loss = -torch.stack(policy_terms).mean()
    value_loss = torch.stack(value_terms).mean() / ppo.critic.scale**2
    entropy = torch.distributions.Normal(torch.zeros_like(std), std).entropy().sum()

    losses = ppo.losses(batch)
    assert losses.clip_fraction > 0.05
    for found, expected in (
        (losses.policy, policy_loss),
        (losses.value, value_loss),
        (losses.entropy, entropy),
    ):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        for one, other in zip(gradients(ppo, found), gradients(ppo, expected), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("horizon", [4, 2])
@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_first_epoch_ratios_are_one(credit, horizon):
    ppo = make_ppo(horizon=horizon, credit=credit)
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    assert ppo.rollout.reset[1:].any()
    batch = ppo.prepare(ppo.rollout)
    losses = ppo.losses(batch)
    means, _ = ppo.policy.scan(
        ppo.rollout.sources, ppo.rollout.reset, torch.ones_like(ppo.rollout.reset), ppo.rollout.h0
    )
    torch.testing.assert_close(means[:, :, :horizon], ppo.rollout.mean, atol=1e-5, rtol=0)
    assert abs(losses.kl.item()) < 1e-6
    assert losses.clip_fraction == 0
    assert losses.policy.item() == pytest.approx(-batch.advantage[batch.credited].mean().item(), abs=1e-5)


def test_tick_log_probabilities_add_up_to_the_chunk_s():
    per_tick, per_chunk = (make_ppo(credit=credit) for credit in ("step", "chunk"))
    collect(per_tick.scheduler, per_tick.rollout, per_tick.generator)
    batch, other = per_tick.prepare(per_tick.rollout), per_chunk.prepare(per_tick.rollout)
    added = (batch.log_prob * per_tick.rollout.valid).sum(-1)
    torch.testing.assert_close(added, other.log_prob[..., 0])
    assert batch.credited.sum() == per_tick.rollout.valid.sum() < batch.credited.numel()


@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_what_was_not_executed_or_not_lived_through_has_no_gradient(credit):
    ppo = make_ppo(horizon=2, credit=credit)
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    batch = ppo.prepare(ppo.rollout)
    idle = ~ppo.rollout.valid
    assert idle.any()

    def loss_gradients(rollout: Rollout) -> list[Tensor]:
        losses = ppo.losses(dataclasses.replace(batch, rollout=rollout))
        return [losses.policy.detach(), *gradients(ppo, losses.policy)]

    changed = dataclasses.replace(ppo.rollout, u=ppo.rollout.u + 3.0 * idle[..., None])
    for one, other in zip(loss_gradients(ppo.rollout), loss_gradients(changed), strict=True):
        assert torch.equal(one, other)
    means_bias = loss_gradients(ppo.rollout)[
        1 + [name for name, _ in ppo.policy.named_parameters()].index("decoder.means.bias")
    ]
    assert means_bias.view(4, -1)[2:].abs().max() == 0
    assert means_bias.view(4, -1)[:2].abs().min() > 0


def test_critic_sees_means_of_the_rest_of_the_chunk_but_no_sampled_action():
    ppo = make_ppo(chunk_size=4, horizon=3)
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    rollout = ppo.rollout
    inputs = ppo.prepare(rollout).critic_inputs
    resampled = dataclasses.replace(rollout, u=torch.randn_like(rollout.u))
    assert torch.equal(ppo.prepare(resampled).critic_inputs, inputs)
    state_size = ppo.env.critic_size
    for phase in range(3):
        state, plan, mask, timing = inputs[4, 5, phase].split([state_size, 4, 4, 2])
        means = [] if phase == 0 else rollout.mean[4, 5, phase:, 0].clamp(-1, 1).tolist()
        assert torch.equal(state, rollout.critic[4, 5, phase])
        assert plan.tolist() == means + [0.0] * (4 - len(means))
        assert mask.tolist() == [1.0] * len(means) + [0.0] * (4 - len(means))
        assert timing.tolist() == pytest.approx([phase / 4, 3 / 4])


def test_bootstrap_at_a_time_out_is_the_value_of_the_true_final_state():
    ppo = make_ppo(chunk_size=4)
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    rollout = ppo.rollout
    k, b, i = rollout.truncated.nonzero()[rollout.truncated.nonzero()[:, 2] < 3][0].tolist()
    with torch.no_grad():
        in_chunk = ppo.critic(ppo.critic.in_chunk(rollout.critic[k, b, :4], rollout.mean[k, b]))
    expected = rollout.reward[k, b, i] + ppo.config.gamma * in_chunk[i + 1]
    torch.testing.assert_close(ppo.prepare(rollout).target[k, b, i], expected)


def test_minibatches_keep_the_sequences_of_worlds_whole():
    ppo = make_ppo()
    collect(ppo.scheduler, ppo.rollout, ppo.generator)
    batch = ppo.prepare(ppo.rollout)
    order = torch.randperm(8)
    parts: list[Batch] = [batch.worlds(index) for index in order.split(4)]
    rejoined = torch.cat([part.rollout.u for part in parts], 1)
    assert torch.equal(rejoined, ppo.rollout.u[:, order])
    assert torch.equal(torch.cat([part.rollout.h0 for part in parts]), ppo.rollout.h0[order])
    whole = ppo.losses(batch)
    weights = [float(part.credited.sum() / batch.credited.sum()) for part in parts]
    split = sum(w * ppo.losses(part).policy for w, part in zip(weights, parts, strict=True))
    torch.testing.assert_close(split, whole.policy, atol=1e-6, rtol=1e-5)


def test_learning_rate_follows_the_divergence_within_its_bounds():
    ppo = make_ppo(target_kl=0.01, learning_rate=1e-3, max_learning_rate=1.1e-3)
    group = ppo.optimizer.param_groups[0]
    ppo._adapt_learning_rate(0.05)
    assert group["lr"] < 1e-3
    for _ in range(3):
        ppo._adapt_learning_rate(0.001)
    assert group["lr"] == 1.1e-3
    ppo._adapt_learning_rate(0.01)
    assert group["lr"] == 1.1e-3


def test_values_stay_what_they_were_when_their_scale_adapts():
    critic = make_ppo().critic
    inputs = critic.undecided(torch.randn(20, critic.state_size))
    with torch.no_grad():
        before = critic(inputs)
        critic.adapt_scale(torch.full((50,), 300.0))
        after = critic(inputs)
    assert critic.scale.item() == pytest.approx(math.sqrt(0.8 + 0.2 * 300.0**2))
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


def test_normalizers_change_only_between_iterations():
    ppo = make_ppo()
    ppo.iterate()
    decisions = 12 * 8
    assert ppo.policy.normalizer.count == decisions
    assert ppo.critic.normalizer.count == ppo.rollout.valid.sum()
    assert ppo.iteration == 1 and ppo.ticks == 12 * 8 * 4


@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_a_few_iterations_learn_to_push_to_one_side(credit, monkeypatch):
    """A task with an obvious answer: reward is the cart's speed to the right."""
    ppo = make_ppo(credit=credit, learning_rate=3e-3)
    task = dataclasses.replace(ppo.env.task, reward=lambda qpos, qvel: qvel[..., 0])
    monkeypatch.setattr(ppo.env, "task", task)
    before = ppo.iterate()["reward_per_tick"]
    for _ in range(25):
        ppo.iterate()
    assert ppo.iterate()["reward_per_tick"] > before + 0.5

"""Chunked PPO: with H = 1 it is the textbook's, and its parts are what they claim to be."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest
import torch
from torch import Tensor

from andante.sim import make
from andante.train import PPO, Policy, PPOConfig
from andante.train.finite import NonFiniteError
from andante.train.ppo import Batch
from andante.train.rollout import Rollout, collect

TASK = "cartpole-swingup-blind"


def make_ppo(
    chunk_size: int = 4,
    horizon: int | None = None,
    memory: str = "gru",
    decoder: str = "mlp",
    threads: int = 1,
    **config,
) -> PPO:
    torch.manual_seed(0)
    env = make(TASK, num_worlds=8, seed=1, threads=1)
    policy = Policy.for_env(
        env,
        hidden_size=16,
        chunk_size=chunk_size,
        execution_horizon=horizon,
        memory=memory,
        decoder=decoder,
    )
    options = {"decisions": 12, "minibatches": 2, "critic_size": 16, **config}
    ppo = PPO(env, policy, PPOConfig(**options), threads=threads)
    state = env.state_dict()
    state["tick"] = env.spec.episode_ticks - torch.arange(3, 19, 2)  # time-outs at every phase
    env.load_state_dict(state)
    return ppo


def collect_double(ppo: PPO) -> Rollout:
    """A rollout with terminations and time-outs, and everything in float64."""
    ppo.collect()
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
    ppo.collect()
    assert ppo.rollout.reset[1:].any()
    batch = ppo.prepare(ppo.rollout)
    losses = ppo.losses(batch)
    means = ppo.policy.scan(
        ppo.rollout.sources, ppo.rollout.reset, torch.ones_like(ppo.rollout.reset), ppo.rollout.h0
    )
    torch.testing.assert_close(means[:, :, :horizon], ppo.rollout.mean, atol=1e-5, rtol=0)
    assert abs(losses.kl.item()) < 1e-6
    assert losses.clip_fraction == 0
    assert losses.policy.item() == pytest.approx(-batch.advantage[batch.credited].mean().item(), abs=1e-5)


@pytest.mark.parametrize("horizon", [4, 2])
@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_ratios_of_a_later_rollout_begin_at_one_from_the_carried_state(credit, horizon):
    ppo = make_ppo(horizon=horizon, credit=credit)
    ppo.iterate()
    ppo.collect()
    assert ppo.rollout.h0[~ppo.rollout.reset[0]].abs().min(1).values.max() > 0
    batch = ppo.prepare(ppo.rollout)
    losses = ppo.losses(batch)
    assert abs(losses.kl.item()) < 1e-6
    assert losses.policy.item() == pytest.approx(-batch.advantage[batch.credited].mean().item(), abs=1e-5)
    forgotten = dataclasses.replace(ppo.rollout, h0=torch.zeros_like(ppo.rollout.h0))
    assert ppo.losses(dataclasses.replace(batch, rollout=forgotten)).kl > 1e-6


@pytest.mark.parametrize("decoder", ["mlp", "interpolate"])
def test_ratios_begin_at_one_from_states_of_other_worlds(decoder):
    ppo = make_ppo(state_passing=0.5, decoder=decoder)
    ppo.iterate()
    own = ppo.scheduler.h.clone()
    ppo.collect()
    h0, memory = ppo.rollout.h0, ppo.policy.memory.size
    passed = (h0[:, :memory] != own[:, :memory]).any(1)
    assert 2 <= passed.sum() < 8
    others = h0[passed][:, None, :memory] == own[None, :, :memory]
    assert others.all(2).any(1).all()
    assert torch.equal(h0[:, memory:], own[:, memory:])
    batch = ppo.prepare(ppo.rollout)
    losses = ppo.losses(batch)
    assert abs(losses.kl.item()) < 1e-6 and losses.clip_fraction == 0


def test_both_credits_have_the_same_mean_gradient_at_lambda_one():
    """Over 60 rollouts of 8 worlds, along 5 random directions: the difference within 4 standard errors.

    Credit `chunk` discounts what follows an action to the decision, credit `step` to the action's own tick.
    """
    ppo = make_ppo(chunk_size=4, horizon=3, gamma=0.95, gae_lambda=1.0, decisions=8)
    by_chunk = PPO(ppo.env, ppo.policy, msgspec.structs.replace(ppo.config, credit="chunk"))
    by_chunk.critic = ppo.critic
    parameters = list(ppo.policy.parameters())
    directions = [[torch.randn_like(parameter) for parameter in parameters] for _ in range(5)]
    samples = []
    for _ in range(60):
        ppo.collect()
        # Earned by the actions, so that gradients are not all noise.
        ppo.rollout.reward.copy_(ppo.rollout.actions[..., 0] * ppo.rollout.valid)
        slopes = []
        for trainer in (ppo, by_chunk):
            batch = trainer.prepare(ppo.rollout)
            to_decision = ppo.config.gamma ** torch.arange(batch.value.shape[-1])
            batch = dataclasses.replace(batch, advantage=(batch.target - batch.value) * to_decision)
            total = trainer.losses(batch).policy * batch.credited.sum()
            slope = torch.autograd.grad(total, parameters)
            slopes.append(
                [
                    sum((one * other).sum() for one, other in zip(slope, direction, strict=True))
                    for direction in directions
                ]
            )
        samples.append(torch.tensor(slopes))
    per_tick, per_chunk = torch.stack(samples).unbind(1)
    difference = per_tick - per_chunk
    error = difference.std(0) / len(samples) ** 0.5
    assert (difference.mean(0).abs() < 4 * error).all()
    assert (per_tick.mean(0).abs() > 4 * per_tick.std(0) / len(samples) ** 0.5).any()


@pytest.mark.parametrize("decoder", ["hold", "interpolate"])
def test_tied_actions_are_one_action_per_decision(decoder):
    ppo = make_ppo(decoder=decoder)
    ppo.collect()
    rollout, policy = ppo.rollout, ppo.policy
    assert rollout.u.shape == (12, 8, 1, 1)
    last = torch.zeros(8, 1)
    for k in range(12):
        last = last.masked_fill(rollout.reset[k, :, None], 0.0)
        share = torch.arange(1, 5)[:, None] / 4 if decoder == "interpolate" else torch.ones(4, 1)
        expected = policy.decode(last[:, None] + share * (rollout.u[k] - last[:, None]))
        torch.testing.assert_close(rollout.actions[k], expected)
        last = rollout.actions[k, :, -1] / policy.decode.scale  # as far as it was within its range
    batch = ppo.prepare(rollout)
    assert batch.advantage.shape == (12, 8, 1) and batch.credited.all()
    losses = ppo.losses(batch)
    assert abs(losses.kl.item()) < 1e-6 and losses.clip_fraction == 0


def test_holding_equals_a_chunk_whose_actions_are_tied():
    """Same weights, same noise for all ticks: the same rollout and, per decision, the same advantages."""
    tied, free = make_ppo(decoder="hold"), make_ppo(credit="chunk")
    with torch.no_grad():
        state = tied.policy.state_dict()
        for name in ("decoder.means.weight", "decoder.means.bias"):
            state[name] = state[name].repeat(4, *[1] * (state[name].dim() - 1))
        free.policy.load_state_dict(state)
    free.critic.load_state_dict(tied.critic.state_dict())
    noise = torch.randn(12, 8, 1, 1)
    for trainer in (tied, free):
        monkey = noise.expand(trainer.rollout.u.shape)
        trainer.generator = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("andante.train.rollout.torch.randn", lambda *_, value=monkey, **__: value)
            collect(trainer.scheduler, trainer.rollout, trainer.generator, trainer.recent, (0.0, 0.0, 0.0))
    torch.testing.assert_close(free.rollout.actions, tied.rollout.actions)
    torch.testing.assert_close(free.rollout.u, tied.rollout.u.expand_as(free.rollout.u))
    torch.testing.assert_close(free.prepare(free.rollout).advantage, tied.prepare(tied.rollout).advantage)


@pytest.mark.parametrize("horizon", [4, 3])
def test_rough_motion_costs_what_its_differences_do(horizon):
    plain, smooth = make_ppo(horizon=horizon), make_ppo(horizon=horizon, smoothness=(0.3, 0.2, 0.1))
    recent = torch.zeros(8, 3, 1)
    for _ in range(2):
        terms, smooth_terms = plain.collect(), smooth.collect()
        rollout, costs = smooth.rollout, []
        assert torch.equal(plain.rollout.u, rollout.u)
        for world in range(8):
            stream = recent[world]
            for k in range(12):
                if rollout.reset[k, world]:
                    stream = torch.zeros(3, 1)
                for i in range(horizon):
                    if not rollout.valid[k, world, i]:
                        assert rollout.reward[k, world, i] == 0
                        continue
                    action = rollout.actions[k, world, i, None] / smooth.policy.decode.scale
                    stream = torch.cat([stream, action])[-4:]
                    one, two, three = (stream.diff(n=n, dim=0)[-1].square().mean() for n in (1, 2, 3))
                    costs.append((0.3 * one + 0.2 * two + 0.1 * three).item())
                    found = (plain.rollout.reward - rollout.reward)[k, world, i].item()
                    assert found == pytest.approx(costs[-1], abs=1e-5, rel=1e-4)
            recent[world] = stream[-3:]
        assert smooth_terms["smoothness"] == pytest.approx(-sum(costs) / len(costs), rel=1e-3)
        assert "smoothness" not in terms


@pytest.mark.parametrize(
    "options",
    [{"smoothness": (0.0, 0.1, 0.0)}, {"decoder": "interpolate"}],
    ids=["smoothness", "interpolate"],
)
def test_the_critic_sees_the_recent_actions_that_matter_to_what_follows(options):
    ppo = make_ppo(**options)
    size, reach = ppo.env.critic_size, 2 if "smoothness" in options else 1
    expected = torch.zeros(8, reach)
    for _ in range(2):
        ppo.collect()
        rollout = ppo.rollout
        assert rollout.critic.shape[-1] == size + reach
        for k in range(12):
            expected[rollout.reset[k]] = 0.0
            for i in range(4):
                torch.testing.assert_close(rollout.critic[k, :, i, size:], expected)
                action = rollout.actions[k, :, i] / ppo.policy.decode.scale
                expected = torch.cat([expected, action], 1)[:, 1:]
            torch.testing.assert_close(rollout.critic[k, :, 4, size:], expected)
    assert make_ppo().rollout.critic.shape[-1] == size


@pytest.mark.parametrize("horizon", [4, 3])
def test_threads_share_the_worlds_of_a_minibatch_and_find_the_same_gradients(horizon):
    one, three = make_ppo(horizon=horizon), make_ppo(horizon=horizon, threads=3)
    one.collect()
    batch = one.prepare(one.rollout)
    credited = batch.credited & (torch.rand(batch.credited.shape) < 0.6)
    batch = dataclasses.replace(batch, credited=credited, valued=credited)
    three.policy.load_state_dict(one.policy.state_dict())
    three.critic.load_state_dict(one.critic.state_dict())
    with torch.no_grad():
        for trainer in (one, three):
            trainer.policy.decoder.means.bias += 0.3
    worlds = torch.tensor([5, 0, 3, 7, 1, 2, 6])
    alone, shared = one._differentiate(batch, worlds), three._differentiate(batch, worlds)
    torch.testing.assert_close(torch.stack(shared), torch.stack(alone))
    assert alone.kl > 1e-3
    for left, right in zip(three.parameters, one.parameters, strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-7)


def test_exploration_falls_in_a_straight_line_and_then_no_further():
    ppo = make_ppo(entropy_bonus=1.0, final_std=0.2, final_std_ticks=3 * 8 * 12 * 4)
    for bound in (1.0 - 0.8 / 3, 1.0 - 1.6 / 3, 0.2, 0.2):
        with torch.no_grad():
            ppo.policy.log_std.fill_(1.0)
        ppo.iterate()
        assert ppo.policy.log_std.exp().max().item() == pytest.approx(bound, rel=1e-5)


@dataclasses.dataclass
class Tick:
    """A tick that was lived through, as a separate environment saw it."""

    k: int
    i: int
    before: Tensor
    after: Tensor
    reward: float
    terminated: bool
    truncated: bool


def relive(ppo: PPO, start: dict, world: int) -> list[Tick]:
    """The ticks of a world's rollout, one call of another environment each."""
    env, rollout = make(TASK, num_worlds=8, seed=1, threads=1), ppo.rollout
    env.load_state_dict(start)
    before, ticks = ppo.rollout.critic[0, world, 0], []
    for k in range(len(rollout.u)):
        for i in range(rollout.u.shape[2]):
            action = ppo.policy.decode(rollout.u[k, world, i]).expand(8, 1, -1)
            outcome = env.step(action)
            ended = outcome.terminated[world, 0].item(), outcome.truncated[world, 0].item()
            ticks.append(Tick(k, i, before, outcome.critic[world, 0], outcome.reward[world].item(), *ended))
            before = outcome.observation.critic[world]
            if any(ended):
                break
    return ticks


def value_by_hand(ppo: PPO, state: Tensor, means: Tensor, phase: int) -> float:
    """V with the means of the ticks from `phase` on as the plan; nothing is planned at phase 0."""
    s, chunk = ppo.policy.execution_horizon, ppo.policy.chunk_size
    plan = means[phase:].clamp(-1, 1).flatten().tolist() if 0 < phase < s else []
    padding = [0.0] * (chunk - len(plan))
    rest = [*plan, *padding, *[1.0] * len(plan), *padding, phase % s / chunk, s / chunk]
    with torch.no_grad():
        return ppo.critic(torch.cat([state, torch.tensor(rest)])).item()


@pytest.mark.parametrize(("chunk_size", "horizon"), [(4, 3), (3, 3)])
@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_targets_equal_those_of_a_separate_environment_stepped_tick_by_tick(credit, chunk_size, horizon):
    ppo = make_ppo(chunk_size, horizon, credit=credit, gamma=0.9, gae_lambda=0.8)
    ppo.iterate()
    with torch.no_grad():
        ppo.critic.head.weight.normal_()
    start = ppo.env.state_dict()
    start["tick"] = ppo.env.spec.episode_ticks - torch.arange(4, 12)
    start["state"][7, 1:3] = torch.tensor([1.4, 0.0])  # at the end of the rail, and on the way off it
    start["state"][7, 3] = 3.0
    ppo.env.load_state_dict(start)
    ppo.collect()
    rollout, batch = ppo.rollout, ppo.prepare(ppo.rollout)
    assert rollout.truncated.any(0).any(0).all() and rollout.terminated.any()
    for world in range(8):
        ticks = relive(ppo, start, world)
        assert len(ticks) == rollout.valid[:, world].sum()
        parts = [[tick] for tick in ticks]
        if credit == "chunk":
            parts = [[tick for tick in ticks if tick.k == k] for k in range(len(rollout.u))]
        following = 0.0
        for part in reversed(parts):
            first, last = part[0], part[-1]
            means, n = rollout.mean[first.k, world], len(part)
            phase, next_phase = (first.i, last.i + 1) if credit == "step" else (0, 0)
            value = value_by_hand(ppo, first.before, means, phase)
            bootstrap = 0.0 if last.terminated else 0.9**n * value_by_hand(ppo, last.after, means, next_phase)
            carried = 0.0 if last.terminated or last.truncated else 0.72**n * following
            earned = sum(0.9**j * tick.reward for j, tick in enumerate(part))
            following = earned + bootstrap - value + carried
            found = batch.target[first.k, world, first.i if credit == "step" else 0].item()
            assert found == pytest.approx(following + value, abs=1e-3, rel=1e-3)


@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_advantages_are_normalized_over_what_is_credited_alone(credit):
    ppo = make_ppo(credit=credit)
    ppo.collect()
    batch = ppo.prepare(ppo.rollout)
    assert credit == "chunk" or not batch.credited.all()
    selected = (batch.target - batch.value)[batch.credited]
    expected = (selected - selected.mean()) / selected.std()
    torch.testing.assert_close(batch.advantage[batch.credited], expected, atol=1e-4, rtol=1e-4)


def test_divergence_and_value_error_are_of_executed_ticks_alone():
    ppo = make_ppo()
    ppo.collect()
    batch, idle = ppo.prepare(ppo.rollout), ~ppo.rollout.valid
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    changed = dataclasses.replace(
        batch,
        rollout=dataclasses.replace(ppo.rollout, mean=ppo.rollout.mean + 9.0 * idle[..., None]),
        target=batch.target + 9.0 * idle,
    )
    losses, others = ppo.losses(batch), ppo.losses(changed)
    assert losses.kl == others.kl > 0
    assert losses.value == others.value > 0
    old, new = batch.behaviour_log_std.exp(), ppo.policy.log_std.exp()
    decided = torch.ones_like(ppo.rollout.reset)
    means = ppo.policy.scan(ppo.rollout.sources, ppo.rollout.reset, decided, ppo.rollout.h0)
    normal = torch.distributions.Normal
    per_tick = torch.distributions.kl_divergence(normal(ppo.rollout.mean, old), normal(means, new)).sum(-1)
    torch.testing.assert_close(losses.kl, per_tick[ppo.rollout.valid].mean())


def test_tick_log_probabilities_add_up_to_the_chunk_s():
    per_tick, per_chunk = (make_ppo(credit=credit) for credit in ("step", "chunk"))
    per_tick.collect()
    batch, other = per_tick.prepare(per_tick.rollout), per_chunk.prepare(per_tick.rollout)
    added = (batch.log_prob * per_tick.rollout.valid).sum(-1)
    torch.testing.assert_close(added, other.log_prob[..., 0])
    assert batch.credited.sum() == per_tick.rollout.valid.sum() < batch.credited.numel()


@pytest.mark.parametrize("credit", ["step", "chunk"])
def test_what_was_not_executed_or_not_lived_through_has_no_gradient(credit):
    ppo = make_ppo(horizon=2, credit=credit)
    ppo.collect()
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
    ppo.collect()
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
    ppo.collect()
    rollout = ppo.rollout
    k, b, i = rollout.truncated.nonzero()[rollout.truncated.nonzero()[:, 2] < 3][0].tolist()
    with torch.no_grad():
        in_chunk = ppo.critic(ppo.critic.in_chunk(rollout.critic[k, b, :4], rollout.mean[k, b]))
    expected = rollout.reward[k, b, i] + ppo.config.gamma * in_chunk[i + 1]
    torch.testing.assert_close(ppo.prepare(rollout).target[k, b, i], expected)


def test_minibatches_keep_the_sequences_of_worlds_whole():
    ppo = make_ppo()
    ppo.collect()
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


def with_reward(ppo: PPO, monkeypatch, reward) -> PPO:
    """The same trainer, whose environment pays `reward` (ticks -> [B, n])."""
    functions = dataclasses.replace(ppo.env._functions, reward=lambda ticks: {"only": reward(ticks)})
    monkeypatch.setattr(ppo.env, "_functions", functions)
    return ppo


def test_an_entropy_bonus_widens_exploration_where_nothing_is_earned(monkeypatch):
    def std_after(entropy_bonus: float) -> float:
        ppo = with_reward(
            make_ppo(entropy_bonus=entropy_bonus),
            monkeypatch,
            lambda ticks: torch.zeros_like(ticks.qpos[..., 0]),
        )
        for _ in range(10):
            ppo.iterate()
        return ppo.policy.log_std.exp().item()

    assert std_after(3.0) > max(1.1, 1.1 * std_after(0.0))


def test_a_reward_that_is_no_number_is_named(monkeypatch):
    ppo = with_reward(make_ppo(), monkeypatch, lambda ticks: torch.full_like(ticks.qpos[..., 0], torch.nan))
    with pytest.raises(NonFiniteError, match="reward is not finite"):
        ppo.iterate()


def test_a_parameter_that_the_last_update_spoils_is_named():
    ppo = make_ppo(epochs=1, minibatches=1)
    ppo.iterate()
    ppo.optimizer.state[ppo.policy.log_std]["exp_avg"].fill_(torch.inf)
    with pytest.raises(NonFiniteError, match=r"parameter 'policy\.log_std' is not finite"):
        ppo.iterate()


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
    with_reward(ppo, monkeypatch, lambda ticks: ticks.qvel[..., 0])
    before = ppo.iterate()["reward_per_tick"]
    for _ in range(25):
        ppo.iterate()
    assert ppo.iterate()["reward_per_tick"] > before + 0.5

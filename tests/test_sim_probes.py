"""Memory probes: what must be remembered, when it counts, and that calls, worlds and saving do not matter."""

from __future__ import annotations

import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.probe import ProbeEnv
from andante.sim.spec import get_spec
from andante.sim.tasks import PROBES

FIELDS = ("reward", "terminated", "truncated", "valid", "critic", "done")


def probe_env(name: str, num_worlds: int, seed: int = 0, ids: torch.Tensor | None = None) -> ProbeEnv:
    return ProbeEnv(PROBES[name.partition("/")[0]](name), num_worlds, seed, ids)


def scores_for(choice: torch.Tensor, size: int) -> torch.Tensor:
    """[B] -> [B, 1, size], largest at the choice."""
    return torch.nn.functional.one_hot(choice, size).float()[:, None] - 0.5


def random_scores(env, n: int, generator: torch.Generator) -> torch.Tensor:
    return 2 * torch.rand(env.num_worlds, n, env.spec.action_size, generator=generator) - 1


def test_tmaze_rewards_the_side_of_the_cue_at_the_junction_alone():
    env = probe_env("tmaze/7", 64, seed=1)
    cue = env.reset().sources["cue"]
    assert set(cue.argmax(1).tolist()) == {0, 1}
    assert (cue.sum(1) == 1).all()
    turn = torch.where(torch.arange(64) % 2 == 0, cue.argmax(1), 1 - cue.argmax(1))
    for tick in range(7):
        outcome = env.step(scores_for(turn, 2))
        assert torch.equal(outcome.critic[:, 0], outcome.observation.critic)
        assert torch.equal(outcome.critic[:, 0, 0], 2.0 * cue.argmax(1) - 1)
        assert (outcome.critic[:, 0, 1:] == torch.tensor([tick == 6, (6 - tick) / 7])).all()
        assert not outcome.reward.any()
        assert not outcome.done.any()
        assert not outcome.observation.sources["cue"].any()
        assert (outcome.observation.sources["junction"] == (tick == 6)).all()
    outcome = env.step(scores_for(turn, 2))
    assert outcome.reward[:, 0].tolist() == [1.0, 0.0] * 32
    assert outcome.terminated.all()
    assert not outcome.truncated.any()
    assert (outcome.observation.sources["cue"].sum(1) == 1).all()


def test_tmaze_ignores_the_scores_in_the_corridor():
    env = probe_env("tmaze/6", 64, seed=2)
    cue = env.reset().sources["cue"].argmax(1)
    random = torch.Generator().manual_seed(0)
    outcome = env.step(torch.cat((random_scores(env, 6, random), scores_for(cue, 2)), 1))
    assert (outcome.reward.sum(1) == 1).all()


@pytest.mark.parametrize(
    ("name", "lengths"), [("tmaze", range(1, 101)), ("tmaze/3-5", range(3, 6)), ("tmaze/10000", [10000])]
)
def test_tmaze_draws_a_length_from_its_range_for_every_episode(name, lengths):
    env = probe_env(name, 1024 if len(lengths) > 1 else 64, seed=3)
    env.reset()
    outcome = env.step(torch.zeros(env.num_worlds, max(lengths) + 1, 2))
    assert (outcome.terminated.sum(1) == 1).all()
    counts = torch.bincount(outcome.valid.sum(1) - 1, minlength=max(lengths) + 1)
    assert set(counts.nonzero().squeeze(1).tolist()) == set(lengths)
    assert counts.max() < 6 * env.num_worlds / len(lengths)
    first = outcome.observation.sources["cue"]
    assert 0.3 < first[:, 0].mean() < 0.7


def test_repeat_previous_rewards_the_symbol_of_k_ticks_before():
    k = 3
    env = probe_env(f"repeat-previous/{k}", 32, seed=1)
    symbols = [env.reset().sources["symbol"].argmax(1)]
    for tick in range(env.spec.episode_ticks):
        answer = symbols[tick - k] if tick >= k else symbols[tick]
        wrong = torch.arange(32) % 2 == 1
        outcome = env.step(scores_for((answer + wrong) % 4, 4))
        expected = torch.where(wrong, 0.0, 0.01) if tick >= k else torch.zeros(32)
        assert torch.equal(outcome.reward[:, 0], expected)
        assert (outcome.truncated == (tick == env.spec.episode_ticks - 1)).all()
        symbols.append(outcome.observation.sources["symbol"].argmax(1))
    shown = torch.bincount(torch.cat(symbols), minlength=4) / (32 * len(symbols))
    assert (shown - 0.25).abs().max() < 0.03


@pytest.mark.parametrize(("name", "expected"), [("tmaze", 0.5), ("repeat-previous", 0.25)])
def test_without_memory_the_return_is_that_of_chance(name, expected):
    env, random = probe_env(name, 2048, seed=4), torch.Generator().manual_seed(0)
    env.reset()
    outcome = env.step(random_scores(env, env.spec.episode_ticks, random))
    assert outcome.done.all()
    assert outcome.reward.sum(1).mean().item() == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("name", ["tmaze/1-9", "repeat-previous/2"])
def test_a_call_of_n_ticks_equals_n_calls_of_one(name):
    long, single = probe_env(name, 32, seed=5), probe_env(name, 32, seed=5)
    long.reset()
    single.reset()
    random = torch.Generator().manual_seed(0)
    running = torch.ones(32, dtype=torch.bool)
    for _ in range(35):
        actions = random_scores(long, 3, random)
        outcome = long.step(actions)
        ticks = [single.step(actions[:, i : i + 1]) for i in range(3)]
        for field in ("reward", "terminated", "truncated", "critic"):
            found, expected = getattr(outcome, field), torch.cat([getattr(tick, field) for tick in ticks], 1)
            assert torch.equal(
                found[running][outcome.valid[running]], expected[running][outcome.valid[running]]
            )
        running &= ~outcome.done
    assert not running.any()


@pytest.mark.parametrize("name", ["tmaze/1-9", "repeat-previous/2"])
def test_permuting_worlds_permutes_results(name):
    random = torch.Generator().manual_seed(0)
    permutation = torch.randperm(17, generator=random)
    plain, permuted = probe_env(name, 17, seed=5), probe_env(name, 17, seed=5, ids=permutation)
    assert torch.equal(plain.reset().critic[permutation], permuted.reset().critic)
    for _ in range(80):
        actions = random_scores(plain, 2, random)
        expected, found = plain.step(actions), permuted.step(actions[permutation])
        for field in FIELDS:
            assert torch.equal(getattr(expected, field)[permutation], getattr(found, field)), field
    assert plain.state_dict()["episode"].min() >= 1


@pytest.mark.parametrize("name", ["tmaze/1-9", "repeat-previous/2"])
def test_a_saved_probe_continues_bit_for_bit(name, tmp_path):
    env, random = probe_env(name, 16, seed=6), torch.Generator().manual_seed(0)
    env.reset()
    for _ in range(7):
        env.step(random_scores(env, 2, random))
    torch.save(env.state_dict(), tmp_path / "env.pt")
    later = [random_scores(env, 5, random) for _ in range(30)]
    expected = [env.step(actions) for actions in later]
    other = probe_env(name, 16, seed=7)
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    for actions, outcome in zip(later, expected, strict=True):
        found = other.step(actions)
        for field in FIELDS:
            assert torch.equal(getattr(found, field), getattr(outcome, field)), field
        for source, value in outcome.observation.sources.items():
            assert torch.equal(found.observation.sources[source], value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tmaze/0", "expected integers of at least 1, found '0'"),
        ("tmaze/9-3", "tmaze/9-3: expected tmaze/LENGTH or tmaze/SHORTEST-LONGEST"),
        ("tmaze/1-2-3", "tmaze/1-2-3: expected tmaze/LENGTH or"),
        ("tmaze/long", "expected integers of at least 1, found 'long'"),
        ("tmaze/", "expected integers of at least 1, found ''"),
        ("repeat-previous/1-2", "repeat-previous/1-2: expected repeat-previous/K"),
        ("repeat-previous/-1", "expected integers of at least 0, found '-1'"),
    ],
)
def test_impossible_parameters_are_refused(name, message):
    for declare in (get_spec, make):
        with pytest.raises(AndanteError, match=message):
            declare(name)


def test_a_state_of_another_environment_is_refused():
    saved = probe_env("tmaze", 3).state_dict()
    with pytest.raises(AndanteError, match="expected 4 worlds, found 3"):
        probe_env("tmaze", 4).load_state_dict(saved)
    with pytest.raises(AndanteError, match="environment state: expected"):
        probe_env("tmaze", 3).load_state_dict({**saved, "state": torch.zeros(3)})


def test_bad_calls_are_refused():
    env = probe_env("tmaze", 2)
    with pytest.raises(AndanteError, match="step before reset"):
        env.step(torch.zeros(2, 1, 2))
    env.reset()
    with pytest.raises(AndanteError, match=r"actions: expected \[2, n, 2\], found \[2, 2\]"):
        env.step(torch.zeros(2, 2))
    with pytest.raises(AndanteError, match=r"found inf \(world 1, tick 0, column 1\)"):
        env.step(torch.tensor([[[0.0, 0.0]], [[0.0, torch.inf]]]))

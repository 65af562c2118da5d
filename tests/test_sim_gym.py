"""`gym/<id>` and `popgym/<id>`: the packages' own environments behind the interface of ours."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import popgym  # noqa: F401  (registers its environments)
import pytest
import torch
from gymnasium import spaces

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.foreign import ForeignEnv
from andante.sim.spec import get_spec

FIELDS = ("reward", "terminated", "truncated", "valid", "critic", "done")


class Counter(gymnasium.Env):
    """Shows its tick and seed; ends for good after `ends` ticks, breaks after `breaks`."""

    action_space = spaces.Box(-1.0, 1.0, (2, 1), np.float64)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, ends: int = 1000, breaks: int = 1000):
        self.ends, self.breaks = ends, breaks

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.tick = seed, 0
        return np.array([0.0, self.np_random.random()]), {}

    def step(self, action):
        assert action.shape == (2, 1)
        assert self.action_space.contains(action)
        self.tick += 1
        shown = np.nan if self.tick > self.breaks else self.tick
        return np.array([shown, self.np_random.random()]), action.sum(), self.tick >= self.ends, False, {}


class Unbounded(Counter):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)


gymnasium.register("test/Counter-v0", entry_point=Counter, max_episode_steps=7)
gymnasium.register("test/Endless-v0", entry_point=Counter)
gymnasium.register("test/Broken-v0", entry_point=lambda: Counter(breaks=2))
gymnasium.register("test/Unbounded-v0", entry_point=Unbounded)
gymnasium.register("test/Short-v0", entry_point=lambda: Counter(ends=3), max_episode_steps=3)


def random_actions(env: ForeignEnv, n: int, generator: torch.Generator) -> torch.Tensor:
    low, high = (torch.tensor(getattr(env.spec.actions[0], key)) for key in ("low", "high"))
    size = (env.num_worlds, n, env.spec.action_size)
    return low + (high - low) * torch.rand(size, generator=generator)


def test_a_declaration_has_the_environments_shapes_limits_and_rate():
    spec = get_spec("gym/Pendulum-v1")
    assert [(source.name, source.kind, source.shape) for source in spec.sources] == [
        ("observation", "reading", (3,))
    ]
    assert (spec.actions[0].low, spec.actions[0].high) == ((-2.0,), (2.0,))
    assert (spec.control_period_ns, spec.episode_ticks) == (50_000_000, 200)
    assert get_spec("gym/test/Endless-v0").episode_ticks == 1000


def test_declaring_a_foreign_task_does_not_import_torch():
    code = (
        "import sys; from andante.sim.spec import get_spec; get_spec('gym/Pendulum-v1'); "
        "get_spec('popgym/AutoencodeEasy-v0'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_world_is_the_environment_stepped_alone():
    env = ForeignEnv("gym/Pendulum-v1", 2, seed=3)
    first = env.reset().sources["observation"]
    alone = gymnasium.make("Pendulum-v1")
    seeds = dict(env._reset_seeds(torch.arange(2)))
    assert seeds[0] != seeds[1]
    for world in range(2):
        expected, _ = alone.reset(seed=seeds[world])
        assert torch.equal(first[world], torch.from_numpy(expected))
    actions = random_actions(env, 201, torch.Generator().manual_seed(0))
    outcome = env.step(actions)
    for tick in range(200):
        expected, reward, _, truncated, _ = alone.step(actions[1, tick].numpy())
        assert torch.equal(outcome.critic[1, tick], torch.from_numpy(expected))
        assert outcome.reward[1, tick].item() == np.float32(reward)
        assert outcome.truncated[1, tick].item() == truncated
    assert outcome.valid.tolist() == [[True] * 200 + [False]] * 2
    again = dict(env._reset_seeds(torch.arange(2)))
    assert not set(again.values()) & set(seeds.values())
    expected, _ = alone.reset(seed=again[1])
    assert torch.equal(outcome.observation.sources["observation"][1], torch.from_numpy(expected))


def test_discrete_actions_are_the_largest_scores():
    env = ForeignEnv("popgym/RepeatPreviousEasy-v0", 3, seed=1)
    symbols = [env.reset().sources["observation"].argmax(1)]
    for tick in range(51):
        answer = symbols[tick - 3] if tick >= 3 else symbols[0]
        outcome = env.step(0.3 * torch.nn.functional.one_hot(answer, 4)[:, None] - 0.2)
        right = pytest.approx(1 / 48) if tick >= 3 else 0
        assert outcome.reward[:, 0].tolist() == [right] * 3
        symbols.append(outcome.observation.sources["observation"].argmax(1))
    assert outcome.terminated.all()


def test_a_choice_of_several_numbers_reaches_the_environment_and_is_shown_as_previous_action():
    env = ForeignEnv("popgym/BattleshipEasy-v0", 1)
    env.reset()
    scores = torch.zeros(1, 1, 16)
    scores[0, 0, 3], scores[0, 0, 8 + 5] = 0.1, 0.2
    before = env._envs[0].unwrapped.guesses.copy()
    shown = env.step(scores).observation.sources["previous_action"][0]
    changed = np.argwhere(env._envs[0].unwrapped.guesses != before)
    assert changed.tolist() == [[3, 5]]
    assert shown.nonzero().squeeze(1).tolist() == [3, 13]


@pytest.mark.parametrize(
    "env_id",
    ["AutoencodeEasy", "CountRecallEasy", "PositionOnlyPendulumEasy", "MultiarmedBanditEasy",
     "HigherLowerEasy", "ConcentrationEasy", "MineSweeperEasy", "VelocityOnlyCartpoleEasy"],
)  # fmt: skip
def test_every_kind_of_popgym_environment_runs_and_tells_the_critic_its_state(env_id):
    env = ForeignEnv(f"popgym/{env_id}-v0", 2, seed=1)
    first = env.reset()
    assert first.critic.shape == (2, env.critic_size)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        outcome = env.step(random_actions(env, 10, generator))
        assert outcome.critic.isfinite().all()
        assert not (outcome.reward != 0)[~outcome.valid].any()
    assert env.state_dict()["episode"].min() >= 1
    assert env.diverged == 0
    raw = env._envs[1].unwrapped
    state = spaces.flatten(raw.state_space, raw.get_state())
    assert torch.equal(outcome.observation.critic[1], torch.from_numpy(np.asarray(state, np.float32)))


def test_actions_are_clipped_to_the_bounds_and_shaped_for_the_environment():
    env = ForeignEnv("gym/test/Counter-v0", 1)
    env.reset()
    assert env.step(torch.tensor([[[0.25, 5.0]]])).reward.item() == 1.25


def test_time_limits_and_ends_are_told_apart():
    outcomes = {}
    for name in ("Counter", "Short"):
        env = ForeignEnv(f"gym/test/{name}-v0", 1)
        env.reset()
        outcomes[name] = env.step(torch.zeros(1, 10, 2))
    assert outcomes["Counter"].truncated[0].nonzero().tolist() == [[6]]
    assert not outcomes["Counter"].terminated.any()
    assert outcomes["Short"].terminated[0].nonzero().tolist() == [[2]]
    assert not outcomes["Short"].truncated.any()
    assert outcomes["Short"].valid[0].tolist() == [True] * 3 + [False] * 7


def test_an_observation_that_is_not_finite_ends_its_world_unrewarded():
    env = ForeignEnv("gym/test/Broken-v0", 2)
    env.reset()
    outcome = env.step(torch.full((2, 5, 2), 0.5))
    assert outcome.terminated.tolist() == [[False, False, True, False, False]] * 2
    assert outcome.reward[0].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert outcome.critic.isfinite().all()
    assert env.diverged == 2
    assert outcome.observation.sources["observation"][:, 0].tolist() == [0.0, 0.0]


def test_permuting_worlds_permutes_results():
    permutation, generator = torch.tensor([2, 0, 1]), torch.Generator().manual_seed(0)
    plain, permuted = (ForeignEnv("gym/test/Counter-v0", 3, seed=1, ids=ids) for ids in (None, permutation))
    first = plain.reset().critic
    assert len(first[:, 1].unique()) == 3
    assert torch.equal(permuted.reset().critic, first[permutation])
    for _ in range(6):
        actions = random_actions(plain, 3, generator)
        expected, found = plain.step(actions), permuted.step(actions[permutation])
        for field in FIELDS:
            assert torch.equal(getattr(expected, field)[permutation], getattr(found, field)), field


def test_worlds_saved_in_mid_episode_begin_a_new_one_and_it_is_said(capsys, tmp_path):
    env, generator = ForeignEnv("gym/test/Counter-v0", 3, seed=2), torch.Generator().manual_seed(0)
    env.reset()
    before = env.step(random_actions(env, 5, generator))
    torch.save(env.state_dict(), tmp_path / "env.pt")
    other = ForeignEnv("gym/test/Counter-v0", 3, seed=9)
    other.load_state_dict(torch.load(tmp_path / "env.pt", weights_only=True))
    assert "3 of 3 worlds begin a new episode" in capsys.readouterr().err
    outcome = other.step(random_actions(other, 4, generator))
    assert outcome.truncated.tolist() == [[True, False, False, False]] * 3
    assert not outcome.reward.any()
    assert torch.equal(outcome.critic[:, 0], before.observation.critic)
    assert outcome.done.all()
    assert other.state_dict()["episode"].tolist() == [1, 1, 1]
    # What the first environment would have begun after its own end.
    expected = env.step(torch.zeros(3, 2, 2)).observation.sources["observation"]
    assert torch.equal(outcome.observation.sources["observation"], expected)
    assert not other.step(random_actions(other, 4, generator)).done.any()


def test_worlds_saved_at_an_episodes_start_continue_exactly_and_silently(capsys):
    env, generator = ForeignEnv("gym/Pendulum-v1", 2, seed=2), torch.Generator().manual_seed(0)
    env.reset()
    env.step(random_actions(env, 200, generator))
    saved = env.state_dict()
    assert saved["episode"].tolist() == [1, 1]
    saved["tick"] = torch.tensor([0, 198])
    other = ForeignEnv("gym/Pendulum-v1", 2, seed=9)
    for each in (env, other):
        each.load_state_dict(saved)
    actions = random_actions(env, 3, generator)
    found, expected = other.step(actions), env.step(actions)
    for field in FIELDS:
        assert torch.equal(getattr(found, field), getattr(expected, field)), field
    assert found.truncated.tolist() == [[False] * 3, [False, True, False]]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym/CartPole-v1", r"gym/CartPole-v1: expected a Box action space, found Discrete\(2\)"),
        ("gym/Blackjack-v1", "gym/Blackjack-v1: expected a Box observation space, found Tuple"),
        ("gym/test/Unbounded-v0", "Unbounded-v0: expected actions with finite bounds, found Box"),
        ("gym/NoSuch-v0", "gym/NoSuch-v0: .*NoSuch"),
        ("popgym/NoSuch-v0", "popgym/NoSuch-v0: .*NoSuch"),
        ("gym/", "task gym/: "),
        ("gymnasium/Pendulum-v1", "no task 'gymnasium/Pendulum-v1'; tasks: "),
    ],
)
def test_what_cannot_be_a_task_gets_one_line(name, message):
    for declare in (get_spec, make):
        with pytest.raises(AndanteError, match=message) as caught:
            declare(name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("gym/Pendulum-v1", "gymnasium"), ("popgym/X", "popgym")])
def test_a_missing_package_is_named_with_its_extra(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AndanteError, match=rf"{name} needs {package}, .*pip install '.\[gym\]'"):
        get_spec(name)

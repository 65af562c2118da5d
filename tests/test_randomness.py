"""Random draws depend on what they are for, and on nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from andante.sim.randomness import WORD, Ahead, Draws, philox


def draws(seed=3, worlds=range(4), episode=0, tick=0) -> Draws:
    world = torch.tensor(list(worlds))
    return Draws(seed, world, torch.full_like(world, episode), torch.full_like(world, tick))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    for words in (torch.tensor(counter), np.array(counter)):
        even, odd = philox(words[0::2], words[1::2], key)
        assert (even[0], odd[0], even[1], odd[1]) == expected


def test_no_draws_at_all_are_possible():
    assert draws().uniform("noise", 0).shape == (4, 0)


def test_draws_stay_what_they_are():
    golden = [[0.11241417304087253, 0.5756797139001602, 0.9996247670926097]]
    assert draws(seed=2**40 + 7, worlds=[5], episode=2, tick=9).uniform("noise", 3).tolist() == golden


def test_a_world_draws_the_same_whatever_its_neighbours():
    everyone = draws(worlds=range(1000)).normal("noise", 5)
    some = torch.tensor([999, 3, 500])
    assert torch.equal(draws(worlds=some.tolist()).normal("noise", 5), everyone[some])


def test_fewer_draws_are_the_first_of_more():
    assert torch.equal(draws().uniform("noise", 3), draws().uniform("noise", 6)[:, :3])


def test_the_number_of_threads_does_not_show():
    def with_threads(threads: int):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return draws(worlds=range(20_001)).normal("noise", 4)
        finally:
            torch.set_num_threads(before)

    assert torch.equal(with_threads(1), with_threads(2))


def test_seed_world_episode_tick_and_stream_each_give_new_draws():
    variants = [
        draws().uniform("noise", 64),
        draws(seed=4).uniform("noise", 64),
        draws(seed=3 + 2**32).uniform("noise", 64),
        draws(worlds=range(4, 8)).uniform("noise", 64),
        draws(episode=1).uniform("noise", 64),
        draws(tick=1).uniform("noise", 64),
        draws().uniform("other", 64),
    ]
    together = torch.cat([variant.flatten() for variant in variants])
    assert len(together.unique()) == len(together)


def test_draws_are_uniform_and_uncorrelated():
    values = draws(worlds=range(4096)).uniform("noise", 16)
    assert values.min() >= 0
    assert values.max() < 1
    expected = values.numel() / 64
    chi_square = ((torch.histc(values, 64, 0, 1) - expected) ** 2 / expected).sum()
    assert chi_square < 111  # 63 degrees of freedom, p = 0.0002
    correlation = torch.corrcoef(values.T) - torch.eye(16)
    assert correlation.abs().max() < 5 / 4096**0.5


def test_normal_draws_have_the_moments_of_a_normal_distribution():
    values = draws(worlds=range(20_000)).normal("noise", 4)
    moments = [(values**power).mean().item() for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.06)


def test_what_is_found_ahead_is_what_the_draws_of_the_moment_say():
    sizes = []

    def function(draws: Draws) -> torch.Tensor:
        sizes.append(len(draws.world))
        return draws.uniform("ahead", 3)

    ahead, random = Ahead(function), torch.Generator().manual_seed(0)
    ids, episode, seed = torch.arange(50) + 7, torch.zeros(50, dtype=torch.int64), 1
    for step in range(200):
        if step == 80:
            seed = 2
        if step == 120:
            ids = ids + 1
        worlds = torch.randperm(50, generator=random)[:2]
        episode[worlds] += 1 if step != 160 else 5
        every = Draws(seed, ids, episode.clone(), torch.zeros_like(episode))
        following = dataclasses.replace(every, episode=every.episode + 1)
        now = every.of(worlds)
        assert torch.equal(ahead(worlds, now, lambda following=following: following), now.uniform("ahead", 3))
    assert len(sizes) < 120

"""`ChunkBuffer`: every action at its own tick, from the newest chunk that came in time, or not at all."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from andante.runtime.chunk import ChunkBuffer


def chunk_of(tick: int, epoch: int, size: int) -> np.ndarray:
    """A chunk whose actions say where they belong: (decision tick, epoch, due tick)."""
    return np.array([(tick, epoch, tick + i) for i in range(size)], np.float32)


@st.composite
def histories(draw):
    """Sizes, and per executed tick: how many are skipped before it, a reset, and each decision's fate."""
    size = draw(st.integers(1, 6))
    horizon = draw(st.integers(1, size))
    delay = draw(st.integers(0, min(horizon, size - horizon)))
    max_delay = draw(st.integers(delay, min(horizon, size - horizon)))
    events = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 0, 0, 0, 1, 2, 7]),  # skipped ticks
                st.sampled_from([False] * 9 + [True]),  # reset
                st.one_of(st.none(), st.integers(0, max_delay + 3)),  # lost, or ticks on the way
            ),
            max_size=60,
        )
    )
    return size, horizon, delay, max_delay, events


@given(histories())
def test_every_executed_tick_has_its_own_action_from_the_newest_chunk_in_time_or_none(history):
    size, horizon, delay, max_delay, events = history
    buffer = ChunkBuffer(size, 3, max_delay)
    accepted: list[tuple[int, int]] = []  # (decision tick, first tick it acts on), of this epoch
    in_flight: list[tuple[int, int, int]] = []  # (arrival, decision tick, epoch)
    tick, origin = -1, 0
    for skipped, reset, fate in events:
        tick += 1 + skipped
        if reset:
            buffer.reset()
            accepted.clear()
            origin = tick
        if (tick - origin) % horizon == 0 and fate is not None:
            in_flight.append((tick + fate, tick, buffer.epoch))
        # Answers that arrive at one tick arrive newest first: out of order.
        for answer in sorted(in_flight, key=lambda a: -a[1]):
            arrival, decided, epoch = answer
            if arrival > tick:
                continue
            in_flight.remove(answer)
            in_time = tick <= decided + max_delay
            newer = all(decided > other for other, _ in accepted)
            taken = buffer.put(chunk_of(decided, epoch, size), decided, epoch, tick, delay)
            assert taken == (epoch == buffer.epoch and in_time and newer)
            if taken:
                accepted.append((decided, max(tick, decided + delay)))
        action = buffer.action_at(tick)
        covering = [decided for decided, first in accepted if first <= tick < decided + size]
        if covering:
            assert tuple(action) == (max(covering), buffer.epoch, tick)
        else:
            assert action is None


def test_tail_plays_to_the_end_of_the_chunk_and_no_further():
    buffer = ChunkBuffer(chunk_size=4, action_size=3)
    buffer.put(chunk_of(10, 0, 4), 10, 0, 10)
    assert [buffer.action_at(tick) is not None for tick in (9, 10, 11, 12, 13, 14)] == [0, 1, 1, 1, 1, 0]


def test_late_chunk_is_used_from_the_tick_where_it_still_applies():
    buffer = ChunkBuffer(chunk_size=4, action_size=3, max_delay=2)
    assert buffer.put(chunk_of(5, 0, 4), tick=5, epoch=0, now=7)
    assert buffer.action_at(6) is None
    assert buffer.action_at(7)[2] == 7


def test_chunk_later_than_training_knew_is_refused():
    buffer = ChunkBuffer(chunk_size=4, action_size=3, max_delay=1)
    assert not buffer.put(chunk_of(5, 0, 4), tick=5, epoch=0, now=7)
    assert buffer.action_at(7) is None


def test_older_chunk_that_arrives_after_a_newer_one_is_refused():
    buffer = ChunkBuffer(chunk_size=4, action_size=3, max_delay=2)
    assert buffer.put(chunk_of(2, 0, 4), tick=2, epoch=0, now=2)
    assert not buffer.put(chunk_of(0, 0, 4), tick=0, epoch=0, now=2)
    assert buffer.action_at(3)[0] == 2


def test_reset_in_mid_chunk_drops_the_old_tail_and_refuses_the_old_epoch():
    for phase in range(4):
        buffer = ChunkBuffer(chunk_size=4, action_size=3, max_delay=3)
        buffer.put(chunk_of(0, 0, 4), 0, 0, 0)
        buffer.reset()
        assert all(buffer.action_at(tick) is None for tick in range(phase, 8))
        assert not buffer.put(chunk_of(phase, 0, 4), phase, 0, phase)
        assert buffer.put(chunk_of(phase, 1, 4), phase, 1, phase)


def test_committed_actions_play_until_the_delayed_chunk_acts():
    buffer = ChunkBuffer(chunk_size=4, action_size=3, max_delay=2)
    buffer.put(chunk_of(0, 0, 4), 0, 0, 0, delay=2)
    buffer.put(chunk_of(2, 0, 4), 2, 0, 2, delay=2)
    assert [buffer.action_at(tick)[0] for tick in (2, 3, 4, 5)] == [0, 0, 2, 2]

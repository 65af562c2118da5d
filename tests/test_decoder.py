"""Chunk decoders: the same function for one decision and for many, small at first."""

from __future__ import annotations

import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.train.decoder import DECODERS, make_decoder

INPUT, HIDDEN, CHUNK, ACTIONS = 7, 16, 5, 3


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return make_decoder(name, INPUT, HIDDEN, CHUNK, ACTIONS)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
def test_leading_dimensions_are_independent_decisions(name, batch):
    decoder, y = build(name), torch.randn(*batch, INPUT)
    last = torch.randn(*batch, ACTIONS)
    chunk = decoder.complete(decoder(y), last)
    assert chunk.shape == (*batch, CHUNK, ACTIONS)
    rows = zip(y.reshape(-1, INPUT), last.reshape(-1, ACTIONS), strict=True)
    alone = [decoder.complete(decoder(row), before) for row, before in rows]
    torch.testing.assert_close(chunk.reshape(-1, CHUNK, ACTIONS), torch.stack(alone))


@pytest.mark.parametrize("name", DECODERS)
def test_first_means_are_near_zero_but_depend_on_the_memory(name):
    means = build(name)(torch.randn(100, INPUT))
    assert means.std(0).min() > 0.0
    assert means.abs().max() < 0.05


def test_gru_decoder_is_the_gru_of_torch_fed_with_its_own_actions():
    decoder, cell = build("gru"), torch.nn.GRUCell(ACTIONS, HIDDEN)
    with torch.no_grad():
        decoder.means.weight.mul_(100.0)
        decoder.means.bias.normal_()
        cell.weight_ih.copy_(decoder.gru.from_input.weight)
        cell.bias_ih.copy_(decoder.gru.from_input.bias)
        cell.weight_hh.copy_(decoder.gru.from_state.weight)
        cell.bias_hh.copy_(decoder.gru.from_state.bias)
    y = torch.randn(4, INPUT)
    h, action, expected = decoder.start(y).tanh(), torch.zeros(4, ACTIONS), []
    for _ in range(CHUNK):
        h = cell(action, h)
        action = decoder.means(h)
        expected.append(action)
    torch.testing.assert_close(decoder(y), torch.stack(expected, 1), atol=1e-6, rtol=1e-5)


def test_every_action_of_a_gru_chunk_teaches_what_the_memory_says():
    decoder, y = build("gru"), torch.randn(INPUT, requires_grad=True)
    means = decoder(y)
    for i in range(CHUNK):
        (gradient,) = torch.autograd.grad(means[i].sum(), y, retain_graph=True)
        assert gradient.abs().min() > 0


def test_unknown_decoder_lists_the_decoders():
    with pytest.raises(
        AndanteError, match=r"^no chunk decoder 'lstm'; decoders: mlp, gru, hold, interpolate$"
    ):
        make_decoder("lstm", INPUT, HIDDEN, CHUNK, ACTIONS)

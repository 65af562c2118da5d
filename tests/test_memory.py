"""Memory cells: the fast scan is the step loop, and nothing passes a reset."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from andante.runtime.errors import AndanteError
from andante.train.memory import CELLS, Gru, MemoryCell, make_cell

STEPS, BATCH, INPUT, SIZE = 11, 6, 5, 7


def sequence(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(STEPS, BATCH, INPUT, generator=generator)
    reset = torch.rand(STEPS, BATCH, generator=generator) < 0.2
    valid = torch.rand(STEPS, BATCH, generator=generator) < 0.7
    return x, reset, valid


def random_state(cell: MemoryCell) -> Tensor:
    return torch.randn(cell.init_state(BATCH).shape, generator=torch.Generator().manual_seed(99))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CELLS)
def test_scan_equals_step_loop_in_values_and_gradients(name, seed):
    torch.manual_seed(seed)
    cell = make_cell(name, INPUT, SIZE)
    x, reset, valid = sequence(seed)
    h0 = random_state(cell)
    weights, last_weights = torch.randn(STEPS, BATCH, SIZE), torch.randn_like(h0)

    def run(scan):
        inputs = x.clone().requires_grad_(), h0.clone().requires_grad_()
        y, h = scan(inputs[0], reset, valid, inputs[1])
        loss = (y * weights * valid[..., None]).sum() + (h * last_weights).sum()
        gradients = torch.autograd.grad(loss, (*inputs, *cell.parameters()), materialize_grads=True)
        return (y * valid[..., None], h, *gradients)

    def step_loop(x, reset, valid, h):
        outputs = []
        for t in range(STEPS):
            states = []
            for b in range(BATCH):
                before = cell.init_state(1)[0] if reset[t, b] else h[b]
                y, after = cell.step(x[t, b : b + 1], before[None])
                outputs.append(y[0])
                states.append(after[0] if valid[t, b] else before)
            h = torch.stack(states)
        return torch.stack(outputs).view(STEPS, BATCH, SIZE), h

    for fast, slow in zip(run(cell.scan), run(step_loop), strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


def test_invalid_steps_hold_the_state():
    cell = Gru(INPUT, SIZE)
    x, reset, _ = sequence(0)
    h0 = random_state(cell)
    _, h = cell.scan(x, torch.zeros_like(reset), torch.zeros_like(reset), h0)
    assert torch.equal(h, h0)


def test_neither_state_nor_gradient_crosses_a_reset():
    cell = Gru(INPUT, SIZE)
    x = sequence(1)[0].requires_grad_()
    h0 = random_state(cell).requires_grad_()
    reset, valid = torch.zeros(STEPS, BATCH, dtype=torch.bool), torch.ones(STEPS, BATCH, dtype=torch.bool)
    reset[4, :3] = True
    y, h = cell.scan(x, reset, valid, h0)
    after_reset = y[4:, :3].square().sum() + h[:3].square().sum()
    grad_x, grad_h0 = torch.autograd.grad(after_reset, (x, h0))
    assert grad_x[:4].abs().max() == 0
    assert grad_h0.abs().max() == 0
    assert grad_x[4:, :3].abs().min() > 0
    poisoned = h0.detach().masked_fill(torch.arange(BATCH)[:, None] < 3, torch.nan)
    assert torch.equal(cell.scan(x, reset, valid, poisoned)[0][4:, :3], y[4:, :3])


def test_gru_is_the_gru_of_torch():
    cell, reference = Gru(INPUT, SIZE), torch.nn.GRUCell(INPUT, SIZE)
    with torch.no_grad():
        for parameter in (cell.from_input.bias, cell.from_state.bias):
            parameter.normal_()
        reference.weight_ih.copy_(cell.from_input.weight)
        reference.bias_ih.copy_(cell.from_input.bias)
        reference.weight_hh.copy_(cell.from_state.weight)
        reference.bias_hh.copy_(cell.from_state.bias)
    x, h = torch.randn(BATCH, INPUT), torch.randn(BATCH, SIZE)
    torch.testing.assert_close(cell.step(x, h)[1], reference(x, h), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_state_spec_describes_the_initial_state(name):
    cell = make_cell(name, INPUT, SIZE)
    values = [value for part in cell.state_spec() for value in part.initial]
    assert len(values) == sum(part.size for part in cell.state_spec())
    assert torch.equal(cell.init_state(3), torch.tensor(values).expand(3, -1))


def test_mlp_remembers_nothing():
    cell = make_cell("mlp", INPUT, SIZE)
    x = torch.randn(1, INPUT)
    y, h = cell.step(x, cell.init_state(1))
    assert torch.equal(h, cell.init_state(1))
    assert torch.equal(cell.step(x, torch.ones_like(h))[0], y)


def test_unknown_cell_is_an_error_that_lists_the_cells():
    with pytest.raises(AndanteError, match=r"no memory cell 'lstm2'; cells: gru, mlp"):
        make_cell("lstm2", INPUT, SIZE)

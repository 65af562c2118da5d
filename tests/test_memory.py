"""Memory cells over sequences: the fast scan is the step loop, and nothing passes a reset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from andante.runtime.errors import AndanteError
from andante.train.config import PolicyConfig
from andante.train.memory import CELLS, MemoryCell, make_cell

STEPS, BATCH, INPUT, SIZE = 11, 6, 5, 7
KINDS = [*((name, 1) for name in CELLS), ("lru", 2), ("lstm", 3)]

every_cell = pytest.mark.parametrize(("name", "layers"), KINDS)


def build(name: str, layers: int = 1, seed: int = 0) -> MemoryCell:
    """In double precision, so that an error can't pass as rounding."""
    torch.manual_seed(seed)
    return make_cell(name, INPUT, SIZE, layers).double()


def random_state(cell: MemoryCell, batch: int = BATCH) -> Tensor:
    return torch.randn_like(cell.init_state(batch))


def masks(steps: int, batch: int) -> tuple[Tensor, Tensor]:
    """No reset, and all valid."""
    return torch.zeros(steps, batch, dtype=torch.bool), torch.ones(steps, batch, dtype=torch.bool)


def step_loop(cell: MemoryCell, x: Tensor, reset: Tensor, valid: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The definition of `scan`, one world at a time."""
    outputs = []
    for t in range(len(x)):
        states, row = [], []
        for b in range(len(h)):
            before = cell.init_state(1)[0] if reset[t, b] else h[b]
            y, after = cell.step(x[t, b : b + 1], before[None])
            row.append(y[0])
            states.append(after[0] if valid[t, b] else before)
        h = torch.stack(states)
        outputs.append(torch.stack(row))
    return torch.stack(outputs), h


flags = st.integers(1, 3).flatmap(
    lambda batch: st.lists(
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=batch, max_size=batch),
        min_size=1,
        max_size=9,
    )
)


@every_cell
@given(flags=flags, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_scan_equals_step_loop_in_values_and_gradients(name, layers, flags, seed):
    cell = build(name, layers, seed)
    reset, valid = torch.tensor(flags).unbind(-1)
    x = torch.randn(*reset.shape, INPUT, dtype=torch.float64)
    h0 = random_state(cell, len(flags[0]))
    weights, last_weights = torch.randn(*reset.shape, SIZE), torch.randn_like(h0)

    def run(scan):
        inputs = x.clone().requires_grad_(), h0.clone().requires_grad_()
        y, h = scan(inputs[0], reset, valid, inputs[1])
        loss = (y * weights * valid[..., None]).sum() + (h * last_weights).sum()
        gradients = torch.autograd.grad(loss, (*inputs, *cell.parameters()), materialize_grads=True)
        return (y * valid[..., None], h, *gradients)

    for fast, slow in zip(run(cell.scan), run(lambda *args: step_loop(cell, *args)), strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-10, rtol=1e-8)


@every_cell
def test_scan_in_single_precision_is_within_1e_5_of_the_step_loop(name, layers):
    cell = build(name, layers).float()
    x, h0 = torch.randn(32, BATCH, INPUT), random_state(cell)
    reset, valid = torch.rand(32, BATCH) < 0.1, torch.rand(32, BATCH) < 0.9
    for fast, slow in zip(cell.scan(x, reset, valid, h0), step_loop(cell, x, reset, valid, h0), strict=True):
        fast, slow = (tensor[valid] if tensor.ndim == 3 else tensor for tensor in (fast, slow))
        torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


@every_cell
@pytest.mark.parametrize("cut", [1, 4, STEPS - 1])
def test_scan_in_two_pieces_equals_the_full_scan(name, layers, cut):
    cell = build(name, layers)
    x, h0 = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64), random_state(cell)
    reset, valid = torch.rand(STEPS, BATCH) < 0.2, torch.rand(STEPS, BATCH) < 0.8
    y, last = cell.scan(x, reset, valid, h0)
    y_early, between = cell.scan(x[:cut], reset[:cut], valid[:cut], h0)
    y_late, last_late = cell.scan(x[cut:], reset[cut:], valid[cut:], between)
    torch.testing.assert_close(torch.cat([y_early, y_late])[valid], y[valid], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(last_late, last, atol=1e-12, rtol=1e-12)


@every_cell
def test_invalid_steps_hold_the_state(name, layers):
    cell = build(name, layers)
    x, h0 = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64), random_state(cell)
    reset, valid = masks(STEPS, BATCH)
    assert torch.equal(cell.scan(x, reset, ~valid, h0)[1], h0)


@every_cell
def test_neither_state_nor_gradient_crosses_a_reset(name, layers):
    cell = build(name, layers)
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64, requires_grad=True)
    h0 = random_state(cell).requires_grad_()
    reset, valid = masks(STEPS, BATCH)
    reset[4, :3] = True
    y, h = cell.scan(x, reset, valid, h0)
    after_reset = y[4:, :3].square().sum() + h[:3].square().sum()
    grad_x, grad_h0 = torch.autograd.grad(after_reset, (x, h0))
    assert grad_x[:4].abs().max() == 0
    assert grad_h0.abs().max() == 0
    assert grad_x[4:, :3].abs().amax(-1).min() > 0
    poisoned = h0.detach().masked_fill(torch.arange(BATCH)[:, None] < 3, torch.nan)
    assert torch.equal(cell.scan(x, reset, valid, poisoned)[0][4:, :3], y[4:, :3])


@every_cell
def test_frozen_cell_has_the_same_outputs(name, layers):
    cell = build(name, layers).float()
    x, h0 = torch.randn(STEPS, BATCH, INPUT), random_state(cell)
    before = (*cell.scan(x, *masks(STEPS, BATCH), h0), *cell.step(x[0], h0))
    cell.freeze()
    after = (*cell.scan(x, *masks(STEPS, BATCH), h0), *cell.step(x[0], h0))
    for thawed, frozen in zip(before, after, strict=True):
        torch.testing.assert_close(frozen, thawed, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("name", "layers"), [("lru", 1), ("ffm", 1), ("ffm", 2)])
def test_frozen_eigenvalues_are_constants_until_training_goes_on(name, layers):
    cell = build(name, layers)
    decays = [value for key, value in cell.named_parameters() if key.endswith("nu")]
    x, h = torch.randn(1, INPUT, dtype=torch.float64), random_state(cell, 1)

    def learns() -> bool:
        gradients = torch.autograd.grad(cell.step(x, h)[1].sum(), decays, allow_unused=True)
        return any(gradient is not None for gradient in gradients)

    assert learns()
    cell.freeze()
    cell.eval()
    assert not learns()
    cell.train()
    assert learns()


@every_cell
def test_every_parameter_learns(name, layers):
    cell = build(name, layers)
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    y, _ = cell.scan(x, *masks(STEPS, BATCH), random_state(cell))
    y.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in cell.parameters())


@every_cell
def test_packed_state_has_the_declared_size_and_initial_values(name, layers):
    cell = build(name, layers)
    sizes = {"lstm": 2 * SIZE, "lru": 2 * SIZE, "ffm": 2 * 2 * 4, "mlp": 1}
    size = layers * sizes.get(name, SIZE)
    spec = cell.state_spec()
    values = [value for part in spec for value in part.initial]
    assert size == sum(part.size for part in spec) == len(values)
    assert len({part.name for part in spec}) == len(spec)
    assert torch.equal(cell.init_state(3), torch.tensor(values, dtype=torch.float64).expand(3, -1))
    y, h = cell.step(torch.randn(3, INPUT, dtype=torch.float64), cell.init_state(3))
    assert (y.shape, h.shape) == ((3, SIZE), (3, size))


@pytest.mark.parametrize("name", ["gru", "lstm", "mingru", "mingru-hard", "lru", "ffm"])
def test_state_stays_bounded_over_ten_thousand_random_steps(name):
    cell = build(name).float()
    x, h, norms = torch.randn(10_000, 4, INPUT), cell.init_state(4), []
    with torch.no_grad():
        for x_t in x:
            _, h = cell.step(x_t, h)
            norms.append(h.norm(dim=-1).max().item())
    settled, late = max(norms[2000:5000]), max(norms[5000:])
    assert 0.1 < late < 1.5 * settled
    if name.startswith("mingru"):
        assert late <= SIZE**0.5


@pytest.mark.parametrize("name", ["lru", "ffm"])
def test_no_parameters_make_an_eigenvalue_larger_than_0_9999(name):
    cell = build(name)
    with torch.no_grad():
        cell.recurrence.nu.fill_(-60.0)
    modulus = torch.linalg.vector_norm(cell.recurrence.eigenvalues(), dim=0)
    assert modulus.max() <= 0.9999 + 1e-12
    assert modulus.min() > 0.99989


def test_hard_gate_holds_exactly():
    kept = {}
    for name in ("mingru", "mingru-hard"):
        cell = build(name)
        with torch.no_grad():
            cell.from_input.weight[:SIZE] = 0.0
            cell.from_input.bias[:SIZE] = -3.0  # the largest pre-activation whose hard gate is 0
        h0 = random_state(cell)
        x = torch.randn(1000, BATCH, INPUT, dtype=torch.float64)
        _, h = cell.scan(x, *masks(1000, BATCH), h0)
        kept[name] = torch.equal(h, h0) and torch.equal(cell.step(x[0], h0)[1], h0)
    assert kept == {"mingru": False, "mingru-hard": True}


def test_stacked_layers_feed_each_other_and_keep_their_own_states():
    cell = build("gru", 2)
    first, second = cell.layers
    assert [part.name for part in cell.state_spec()] == ["0.h", "1.h"]
    x, h = torch.randn(BATCH, INPUT, dtype=torch.float64), random_state(cell)
    below, h_first = first.step(x, h[:, :SIZE])
    y, h_second = second.step(below, h[:, SIZE:])
    stacked = cell.step(x, h)
    assert torch.equal(stacked[0], y)
    assert torch.equal(stacked[1], torch.cat([h_first, h_second], 1))


def test_number_of_layers_must_be_positive():
    with pytest.raises(AndanteError, match="memory_layers must be positive, found 0"):
        PolicyConfig(memory_layers=0)


def test_mlp_remembers_nothing():
    cell = make_cell("mlp", INPUT, SIZE)
    x = torch.randn(1, INPUT)
    y, h = cell.step(x, cell.init_state(1))
    assert torch.equal(h, cell.init_state(1))
    assert torch.equal(cell.step(x, torch.ones_like(h))[0], y)


def test_unknown_cell_is_one_line_that_lists_the_cells():
    cells = "gru, lstm, mingru, mingru-hard, lru, ffm, mlp"
    with pytest.raises(AndanteError, match=rf"^no memory cell 'lstm2'; cells: {cells}$"):
        make_cell("lstm2", INPUT, SIZE)


def test_initial_time_constants_of_ffm_reach_from_one_to_a_thousand_decisions():
    recurrence = make_cell("ffm", INPUT, 128).recurrence
    modulus = torch.linalg.vector_norm(recurrence.eigenvalues(), dim=0).detach().double()
    time_constants = -1.0 / modulus.log()
    np.testing.assert_allclose([time_constants.min(), time_constants.max()], [1.0, 1024.0], rtol=1e-3)

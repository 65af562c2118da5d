"""Each cell's step is what its paper says, written here in numpy, or what torch has of the same name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from andante.train.memory import MemoryCell, make_cell

BATCH, INPUT, SIZE = 6, 5, 8


def build(name: str) -> MemoryCell:
    torch.manual_seed(3)
    cell = make_cell(name, INPUT, SIZE).double()
    with torch.no_grad():
        for key, parameter in cell.named_parameters():
            if key.endswith("bias"):
                parameter.normal_()
    return cell


def arrays(cell: MemoryCell) -> dict[str, np.ndarray]:
    return {key: value.detach().numpy() for key, value in cell.named_parameters()}


def inputs(cell: MemoryCell) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(BATCH, INPUT, dtype=torch.float64), torch.randn_like(cell.init_state(BATCH))


def affine(parameters: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ parameters[f"{name}.weight"].T + parameters.get(f"{name}.bias", 0.0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def complex_of(packed: np.ndarray) -> np.ndarray:
    real, imaginary = np.split(packed, 2, -1)
    return real + 1j * imaginary


def assert_equal(found: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_gru_is_the_gru_of_torch():
    cell, reference = build("gru"), torch.nn.GRUCell(INPUT, SIZE).double()
    with torch.no_grad():
        reference.weight_ih.copy_(cell.from_input.weight)
        reference.bias_ih.copy_(cell.from_input.bias)
        reference.weight_hh.copy_(cell.from_state.weight)
        reference.bias_hh.copy_(cell.from_state.bias)
    x, h = inputs(cell)
    y, after = cell.step(x, h)
    torch.testing.assert_close(after, reference(x, h))
    assert torch.equal(y, after)


def test_lstm_is_the_lstm_of_torch():
    cell, reference = build("lstm"), torch.nn.LSTMCell(INPUT, SIZE).double()
    order = torch.cat([torch.arange(SIZE) + SIZE * gate for gate in (0, 1, 3, 2)])  # torch: i, f, g, o
    with torch.no_grad():
        reference.weight_ih.copy_(cell.from_input.weight[order])
        reference.bias_ih.copy_(cell.from_input.bias[order])
        reference.weight_hh.copy_(cell.from_state.weight[order])
        reference.bias_hh.zero_()
    x, packed = inputs(cell)
    y, after = cell.step(x, packed)
    h, c = reference(x, tuple(packed.split(SIZE, 1)))
    torch.testing.assert_close(after, torch.cat([h, c], 1))
    torch.testing.assert_close(y, h)


@pytest.mark.parametrize(
    ("name", "gate"), [("mingru", sigmoid), ("mingru-hard", lambda x: np.clip(x / 6 + 0.5, 0, 1))]
)
def test_mingru(name, gate):
    cell = build(name)
    x, h = inputs(cell)
    y, after = cell.step(3.0 * x, h)
    pre_gate, candidate = np.split(affine(arrays(cell), "from_input", 3.0 * x.numpy()), 2, -1)
    z = gate(pre_gate)
    assert_equal(after, (1 - z) * h.numpy() + z * np.tanh(candidate))
    assert torch.equal(y, after)


def test_lru():
    cell = build("lru")
    x, h = inputs(cell)
    y, after = cell.step(x, h)
    p = arrays(cell)
    eigenvalues = 0.9999 * np.exp(-np.exp(p["recurrence.nu"]) + 1j * p["recurrence.phase"])
    driven = np.exp(p["gamma"]) * complex_of(affine(p, "from_input", x.numpy()))
    state = eigenvalues * complex_of(h.numpy()) + driven
    state = np.concatenate([state.real, state.imag], -1)
    assert_equal(after, state)
    read = affine(p, "output", state) + affine(p, "skip", x.numpy())
    assert_equal(y, np.where(read > 0, read, np.exp(read) - 1))


def test_lru_starts_on_the_ring_with_unit_gain():
    torch.manual_seed(0)
    cell = make_cell("lru", INPUT, 256)
    modulus = torch.linalg.vector_norm(cell.recurrence.eigenvalues(), dim=0)
    assert 0.9 <= modulus.min() < 0.905 and 0.995 < modulus.max() <= 0.999
    assert cell.recurrence.phase.min() >= 0.0 and 0.3 < cell.recurrence.phase.max() <= np.pi / 10
    torch.testing.assert_close(cell.gamma.exp(), (1 - modulus**2).sqrt(), atol=1e-4, rtol=1e-3)


def test_ffm():
    cell = build("ffm")
    x, h = inputs(cell)
    y, after = cell.step(x, h)
    p, x = arrays(cell), x.numpy()
    traces, context = 2, 4
    decay, phase = p["recurrence.nu"].reshape(traces, 1), p["recurrence.phase"].reshape(1, context)
    factor = 0.9999 * np.exp(-np.exp(decay) + 1j * phase)
    driven = affine(p, "input", x) * sigmoid(affine(p, "input_gate", x))
    state = factor * complex_of(h.numpy()).reshape(BATCH, traces, context) + driven[:, :, None]
    state = np.concatenate([state.real.reshape(BATCH, -1), state.imag.reshape(BATCH, -1)], -1)
    assert_equal(after, state)
    mixed, gate = affine(p, "mix", state), sigmoid(affine(p, "output_gate", x))
    centred = mixed - mixed.mean(-1, keepdims=True)
    normed = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-5)
    assert_equal(y, normed * gate + affine(p, "skip", x) * (1 - gate))

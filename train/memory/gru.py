"""Gated recurrent unit, in the form with the reset gate after the product (arXiv 1406.1078, 1412.3555)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .cell import MemoryCell, StateSpec

aten = torch.ops.aten


class Gru(MemoryCell):
    """r, z = sigmoid(W x + U h); n = tanh(W x + b + r * (U h + c)); h' = n + z * (h - n); y = h'.

    Plain matrix products rather than the ONNX GRU operator, which can't be quantized.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.from_input = nn.Linear(input_size, 3 * size)
        self.from_state = nn.Linear(size, 3 * size)
        with torch.no_grad():
            for gate in self.from_state.weight.view(3, size, size):
                nn.init.orthogonal_(gate)
            self.from_input.bias.zero_()
            self.from_state.bias.zero_()

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The hidden state h."""
        return (StateSpec("h", self.size, (0.0,) * self.size),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision; the output is the new state."""
        parts = [2 * self.size, self.size]
        (gates, candidate), (recurrent_gates, recurrent) = (
            torch.split(sums, parts, -1) for sums in (self.from_input(x), self.from_state(h))
        )
        r, z = torch.sigmoid(gates + recurrent_gates).chunk(2, -1)
        n = torch.tanh(torch.addcmul(candidate, r, recurrent))
        h = torch.addcmul(n, z, h - n)
        return h, h

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop, with the products of all inputs taken at once. Gradients of first order only."""
        h = _GruScan.apply(  # type: ignore[no-untyped-call]
            self.from_input(x),
            self.from_state.weight,
            self.from_state.bias,
            h0,
            reset[..., None],
            ~valid[..., None],
        )
        return h, h[-1]


class _GruScan(torch.autograd.Function):
    """The steps after W x + b, with their gradient by hand: half the operations that autograd takes.

    Sizes: T decisions, B worlds, N states. What belongs to r, z and n lies side by side, as in the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, driven: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, reset: Tensor, held: Tensor
    ) -> Tensor:
        ctx.any_reset, ctx.any_held = (mask.flatten(1).any(1).tolist() for mask in (reset, held))
        size = h0.shape[-1]
        before, n, h = (driven.new_empty(*driven.shape[:2], size) for _ in range(3))
        gates, recurrent = torch.empty_like(driven[..., : 2 * size]), torch.empty_like(driven)
        state, transposed = h0, weight.t()
        for t in range(len(driven)):
            if ctx.any_reset[t]:
                state = state.masked_fill(reset[t], 0.0)
            before[t] = state
            sums = torch.addmm(bias, before[t], transposed, out=recurrent[t])
            rz = torch.add(driven[t, :, : 2 * size], sums[:, : 2 * size], out=gates[t]).sigmoid_()
            r, z = rz.chunk(2, -1)
            torch.addcmul(driven[t, :, 2 * size :], r, sums[:, 2 * size :], out=n[t]).tanh_()
            state = torch.lerp(n[t], before[t], z, out=h[t])
            if ctx.any_held[t]:
                torch.where(held[t], before[t], state, out=state)
        ctx.save_for_backward(weight, gates, recurrent[..., 2 * size :], n, before, reset, held)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, gates, recurrent, n, before, reset, held = ctx.saved_tensors
        size = n.shape[-1]
        grad_driven = n.new_empty(*n.shape[:2], 3 * size)
        grad_recurrent = torch.empty_like(grad_driven)
        carried = torch.zeros_like(n[0])
        for t in reversed(range(len(n))):
            r, z = gates[t].chunk(2, -1)
            total = carried.add_(grad[t])
            if ctx.any_held[t]:
                kept, total = total.masked_fill(~held[t], 0.0), total.masked_fill(held[t], 0.0)
            driven, sums = grad_driven[t], grad_recurrent[t]
            onward = total * z
            torch.sub(before[t], n[t], out=driven[:, size : 2 * size]).mul_(total)
            candidate = driven[:, 2 * size :]
            aten.tanh_backward.grad_input(total - onward, n[t], grad_input=candidate)
            torch.mul(candidate, recurrent[t], out=driven[:, :size])
            both = driven[:, : 2 * size]
            aten.sigmoid_backward.grad_input(both, gates[t], grad_input=both)
            sums[:, : 2 * size] = both
            torch.mul(candidate, r, out=sums[:, 2 * size :])
            carried = torch.addmm(onward, sums, weight)
            if ctx.any_held[t]:
                carried += kept
            if ctx.any_reset[t]:
                carried.masked_fill_(reset[t], 0.0)
        flat = grad_recurrent.flatten(0, 1)
        return grad_driven, flat.t() @ before.flatten(0, 1), flat.sum(0), carried, None, None

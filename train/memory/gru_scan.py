"""The GRU over a sequence, differentiated by hand.

Autograd keeps a dozen small nodes per decision, and adds up the gradient of the recurrent weights at each of
them. Here everything that doesn't depend on the recursion is done for the whole sequence at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GruScan(torch.autograd.Function):
    """`MemoryCell.scan` of the GRU, from the products of its inputs; for the gradient see `backward`."""

    @staticmethod
    def forward(
        ctx: Any,
        driven: Tensor,
        weight: Tensor,
        bias: Tensor,
        reset: Tensor,
        valid: Tensor,
        h0: Tensor,
        initial: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """driven = W x + b [T, B, 3S], recurrent weight [3S, S] and bias [3S] -> outputs [T, B, S], last state."""
        steps, batch, size = len(driven), len(h0), weight.shape[1]
        h_in, candidate, n, outputs = (driven.new_empty(steps, batch, size) for _ in range(4))
        rz = driven.new_empty(steps, batch, 2 * size)
        any_reset, any_held = reset.any(1).tolist(), (~valid).any(1).tolist()
        h = h0
        for t in range(steps):
            if any_reset[t]:
                h = torch.where(reset[t, :, None], initial, h)
            h_in[t] = h
            product = torch.addmm(bias, h, weight.t())
            torch.sigmoid(driven[t, :, : 2 * size] + product[:, : 2 * size], out=rz[t])
            r, z = rz[t].chunk(2, -1)
            candidate[t] = product[:, 2 * size :]
            torch.tanh(torch.addcmul(driven[t, :, 2 * size :], r, candidate[t]), out=n[t])
            torch.addcmul(n[t], z, h - n[t], out=outputs[t])
            h = torch.where(valid[t, :, None], outputs[t], h) if any_held[t] else outputs[t]
        ctx.save_for_backward(weight, reset, valid, h_in, candidate, n, rz)
        ctx.any_reset, ctx.any_held = any_reset, any_held
        return outputs, h.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        """Backpropagation through time; the gates' derivatives and the weights' gradients outside of the loop."""
        weight, reset, valid, h_in, candidate, n, rz = ctx.saved_tensors
        size = weight.shape[1]
        r, z = rz.chunk(2, -1)
        n_slope = (1.0 - z) * (1.0 - n.square())
        z_slope = (h_in - n) * z * (1.0 - z)
        r_slope = candidate * r * (1.0 - r)
        grad_driven = torch.empty(*n.shape[:2], 3 * size, dtype=n.dtype, device=n.device)
        grad_product_n = torch.empty_like(n)
        grad_h = grad_last
        for t in reversed(range(len(n))):
            passed_on = grad_outputs[t]
            if ctx.any_held[t]:
                held = ~valid[t, :, None]
                kept, grad_h = grad_h * held, grad_h * ~held
            grad = passed_on + grad_h
            grad_n = grad * n_slope[t]
            torch.mul(grad_n, r_slope[t], out=grad_driven[t, :, :size])
            torch.mul(grad, z_slope[t], out=grad_driven[t, :, size : 2 * size])
            grad_driven[t, :, 2 * size :] = grad_n
            torch.mul(grad_n, r[t], out=grad_product_n[t])
            grad_h = grad * z[t]
            grad_h.addmm_(grad_driven[t, :, : 2 * size], weight[: 2 * size])
            grad_h.addmm_(grad_product_n[t], weight[2 * size :])
            if ctx.any_held[t]:
                grad_h = grad_h + kept
            if ctx.any_reset[t]:
                grad_h = grad_h * ~reset[t, :, None]
        grad_product = torch.cat([grad_driven[..., : 2 * size], grad_product_n], -1).flatten(0, 1)
        grad_weight = grad_product.t() @ h_in.flatten(0, 1)
        return grad_driven, grad_weight, grad_product.sum(0), None, None, grad_h, None

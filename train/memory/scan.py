"""Running a memory over a sequence: step after step, with resets and invalid steps.

Time goes one decision at a time in both. Scans that are parallel in time (Hillis-Steele doubling, odd-even
recursion, torch's associative_scan) give the same result, but with hundreds of worlds side by side each step
is wide enough already, and their extra work makes them 3 to 8 times slower on a CPU (bench/scan.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def step_scan(
    step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    reset: Tensor,
    valid: Tensor,
    h0: Tensor,
    initial: Tensor,
) -> tuple[Tensor, Tensor]:
    """Apply `step` (x[t], h -> y, h') to a sequence; selections only at decisions that need them.

    Arguments and result as in `MemoryCell.scan`; `initial` [B, S] is what a reset puts in place.
    """
    h, outputs = h0, []
    any_reset, any_held = reset.any(1).tolist(), (~valid).any(1).tolist()
    for t, x_t in enumerate(x.unbind()):
        if any_reset[t]:
            h = torch.where(reset[t, :, None], initial, h)
        y, new = step(x_t, h)
        h = torch.where(valid[t, :, None], new, h) if any_held[t] else new
        outputs.append(y)
    return torch.stack(outputs), h


def linear_scan(a: Tensor, b: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> Tensor:
    """h[t] = a[t] * h[t-1] + b[t], elementwise, for states that every reset sets to 0.

    Args:
        a, b: [T, B, N], both real or both complex.
        reset: bool [T, B]; 0 takes the place of h[t-1].
        valid: bool [T, B]; where False, h[t] = h[t-1].
        h0: [B, N], takes the place of h[-1].

    Returns:
        h [T, B, N]. Gradients of first order only.
    """
    h: Tensor = _LinearScan.apply(  # type: ignore[no-untyped-call]
        a, b, h0, reset[..., None], ~valid[..., None]
    )
    return h


class _LinearScan(torch.autograd.Function):
    """With its gradient by hand: one multiply-add per step each way, and nothing kept but the states."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, h0: Tensor, reset: Tensor, held: Tensor) -> Tensor:
        ctx.any_reset, ctx.any_held = (mask.flatten(1).any(1).tolist() for mask in (reset, held))
        h = torch.empty_like(b)
        before = h0
        for t in range(len(b)):
            if ctx.any_reset[t]:
                before = before.masked_fill(reset[t], 0.0)
            after = torch.addcmul(b[t], a[t], before, out=h[t])
            if ctx.any_held[t]:
                torch.where(held[t], before, after, out=after)
            before = after
        ctx.save_for_backward(a, h0, h, reset, held)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, h0, h, reset, held = ctx.saved_tensors
        a = a.conj()
        total, carried = torch.empty_like(h), torch.zeros_like(h0)
        for t in reversed(range(len(h))):
            torch.add(grad[t], carried, out=total[t])
            carried = a[t] * total[t]
            if ctx.any_held[t]:
                carried = torch.where(held[t], total[t], carried)
            if ctx.any_reset[t]:
                carried.masked_fill_(reset[t], 0.0)
        grad_b = total.masked_fill_(held, 0.0)
        before = torch.cat([h0[None], h[:-1]]).masked_fill_(reset, 0.0)
        return grad_b * before.conj(), grad_b, carried, None, None

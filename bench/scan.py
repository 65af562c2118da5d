"""Ways to run a linear memory over a sequence: which is fastest, forward and backward, on one thread.

    python bench/scan.py

Ratios to `linear_scan` in one process, interleaved, medians. The last line is JSON: the smallest ratio of any
other way, which must stay above 1.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

from andante.train.memory.scan import linear_scan

REPEATS = 7
SIZES = [(24, 256, 64), (32, 256, 128), (24, 1024, 128), (32, 1024, 64)]
"""Decisions, worlds, state."""

Scan = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def fold(a: Tensor, b: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    """Resets, invalid steps and h0 as coefficients."""
    held = ~valid[..., None]
    a = a.masked_fill(held, 1.0).masked_fill(reset[..., None], 0.0)
    b = b.masked_fill(held, 0.0)
    return a, torch.cat([torch.addcmul(b[:1], a[:1], h0), b[1:]])


def loop(*arguments: Tensor) -> Tensor:
    a, b = fold(*arguments)
    states = [b[0]]
    for a_t, b_t in zip(a[1:].unbind(), b[1:].unbind(), strict=True):
        states.append(torch.addcmul(b_t, a_t, states[-1]))
    return torch.stack(states)


def doubling(*arguments: Tensor) -> Tensor:
    a, b = fold(*arguments)
    stride = 1
    while stride < len(b):
        b = torch.cat([b[:stride], torch.addcmul(b[stride:], a[stride:], b[:-stride])])
        a = torch.cat([a[:stride], a[stride:] * a[:-stride]])
        stride *= 2
    return b


def higher_order(*arguments: Tensor) -> Tensor:
    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], right[0] * left[1] + right[1]

    h: Tensor = associative_scan(combine, fold(*arguments), 0, combine_mode="generic")[1]
    return h


WAYS: dict[str, Scan] = {
    "linear_scan": linear_scan,
    "step loop": loop,
    "doubling": doubling,
    "associative_scan": higher_order,
}


def measure(scan: Scan, steps: int, batch: int, size: int) -> tuple[float, list[Tensor]]:
    torch.manual_seed(0)
    a, b, h0 = torch.rand(steps, batch, size), torch.randn(steps, batch, size), torch.randn(batch, size)
    reset, valid = torch.rand(steps, batch) < 0.01, torch.rand(steps, batch) < 0.99
    weights = torch.randn_like(b)
    leaves = [tensor.requires_grad_() for tensor in (a, b, h0)]
    start = time.perf_counter()
    h = scan(a, b, reset, valid, h0)
    gradients = torch.autograd.grad(h, leaves, weights)
    return time.perf_counter() - start, [h.detach(), *gradients]


def main() -> None:
    torch.set_num_threads(1)
    lowest = float("inf")
    for sizes in SIZES:
        expected = measure(linear_scan, *sizes)[1]
        for name, scan in WAYS.items():
            for found, tensor in zip(measure(scan, *sizes)[1], expected, strict=True):
                torch.testing.assert_close(found, tensor, atol=1e-4, rtol=1e-4, msg=name)
        rounds = [{name: measure(scan, *sizes)[0] for name, scan in WAYS.items()} for _ in range(REPEATS)]
        ratios = {
            name: statistics.median(seconds[name] / seconds["linear_scan"] for seconds in rounds)
            for name in WAYS
        }
        print(f"T, B, N = {sizes}:", ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items()))
        lowest = min(lowest, *(ratio for name, ratio in ratios.items() if name != "linear_scan"))
    record = {"name": "linear_scan_speed", "value": round(lowest, 2), "target": 1.0, "holds": lowest > 1.0}
    print(json.dumps(record))


if __name__ == "__main__":
    main()

"""`repeat-previous`, `repeat-previous/K`: the n-back test, as POPGym's RepeatPrevious (Morad et al., "POPGym:
Benchmarking partially observable reinforcement learning", 2023), with independent symbols.

`symbol` shows one of four symbols at every tick (one-hot), each as likely as the others. The largest of four
scores is the answer: reward 1/100 if it is the symbol of k ticks before. The return is the share of right
answers, 0.25 by chance. A symbol between two decisions is not seen: only a policy that decides at every
tick can answer all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..probe import Probe, at_ticks, integers
from ..randomness import Draws
from ..spec.repeat_previous import ANSWERS, SYMBOLS, lag, repeat_previous_spec


def repeat_previous(name: str) -> Probe:
    """The probe of that name.

    Raises:
        AndanteError: see `lag`.
    """
    k = lag(name)

    def symbol(draws: Draws, tick: Tensor) -> Tensor:
        uniform = at_ticks(draws, tick).uniform("symbol", 1)
        return integers(uniform.view(tick.shape), 0, SYMBOLS - 1)

    def answer(draws: Draws, tick: Tensor) -> Tensor:
        return symbol(draws, (tick - k).clamp(min=0))

    def one_hot(symbols: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(symbols, SYMBOLS).float()

    def observe(draws: Draws, tick: Tensor) -> dict[str, Tensor]:
        return {"symbol": one_hot(symbol(draws, tick))}

    def critic(draws: Draws, tick: Tensor) -> Tensor:
        """The answer, zeros before there is one."""
        return one_hot(answer(draws, tick)) * (tick >= k)[..., None]

    def outcome(draws: Draws, tick: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        right = (actions.argmax(-1) == answer(draws, tick)) & (tick >= k)
        return right.float() / ANSWERS, torch.zeros_like(right)

    return Probe(repeat_previous_spec(name), SYMBOLS, observe, critic, outcome)

"""`tmaze`, `tmaze/LENGTH`, `tmaze/SHORTEST-LONGEST`: the T-maze of Bakker ("Reinforcement learning with long
short-term memory", 2001), with a corridor that leads to its junction by itself.

At an episode's first tick `cue` is (1, 0) for left or (0, 1) for right, later zeros. After the corridor's
length in ticks, drawn anew for each episode, `junction` is 1, and the larger score of that tick is the turn:
reward 1 if it is the cue's, and the end. Before, scores do nothing. Any execution horizon will do, since a
policy may give the cue's side the larger score at every tick. The mean return is the share of right turns,
0.5 without memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..probe import Probe, integers
from ..randomness import Draws
from ..spec.tmaze import corridor, tmaze_spec


def tmaze(name: str) -> Probe:
    """The probe of that name.

    Raises:
        AndanteError: see `corridor`.
    """
    shortest, longest = corridor(name)

    def episode(draws: Draws) -> tuple[Tensor, Tensor]:
        """Side and length of the corridor, [B, 1]."""
        uniform = draws.uniform("tmaze", 2)
        return integers(uniform[:, :1], 0, 1), integers(uniform[:, 1:], shortest, longest)

    def observe(draws: Draws, tick: Tensor) -> dict[str, Tensor]:
        side, length = episode(draws)
        cue = torch.nn.functional.one_hot(side, 2) * (tick == 0)[..., None]
        return {"cue": cue.float(), "junction": (tick >= length).float()[..., None]}

    def critic(draws: Draws, tick: Tensor) -> Tensor:
        """The side, whether this is the junction, and the way to it as a share of the longest."""
        side, length = episode(draws)
        left = (length - tick).clamp(min=0)
        return torch.stack(((2.0 * side - 1.0).expand(left.shape), (left == 0).float(), left / longest), -1)

    def outcome(draws: Draws, tick: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        side, length = episode(draws)
        turning = tick >= length
        return (turning & (actions.argmax(-1) == side)).float(), turning

    return Probe(tmaze_spec(name), 3, observe, critic, outcome)

"""The command that each world follows: drawn anew now and then, and led there at its slew rate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .randomness import Ahead, Draws
from .spec.task import TaskSpec


class Commands:
    """Owns the command in force at every world's next tick.

    What is drawn depends on (seed, world, episode, tick) alone, not on how ticks are grouped into calls.
    """

    value: Tensor
    """In force at the next tick, float32 [B, k]; k = 0 for a task without a command."""
    target: Tensor
    """Where it is led to [B, k]."""

    def __init__(self, spec: TaskSpec, num_worlds: int, device: torch.device):
        """Without `TaskSpec.command`, the command stays what it is when it times out."""
        source = spec.command_source
        components = () if source is None else source.components
        self._sampling = spec.command
        self._low, self._high, self._resting, self._step = (
            torch.tensor(values, dtype=torch.float32, device=device)
            for values in (
                [component.low for component in components],
                [component.high for component in components],
                [component.timeout_value for component in components],
                [(component.slew or torch.inf) * spec.control_dt for component in components],
            )
        )
        self._slews = bool(self._step.isfinite().any())
        self.value = self._resting.repeat(num_worlds, 1)
        self.target = self.value.clone()
        self._steered: Tensor | None = None
        self._first, self._later = (Ahead(self._draw) for _ in range(2))

    def steer(self, target: Tensor | None) -> None:
        """Lead all worlds to `target` [k] instead of what is drawn; None: to draws again, from the next on.

        Belongs to whoever steers, not to the saved state.
        """
        self._steered = target = None if target is None else target.to(self.target)
        if target is not None:
            self.target[:] = target.clamp(self._low, self._high)

    def restart(self, worlds: Tensor, draws: Draws, following: Callable[[], Draws]) -> None:
        """Begin an episode in `worlds` [k]: from rest towards what `draws` at tick 0 say.

        `following` gives those of the next episodes of all.
        """
        if self._steered is not None:
            drawn = self._steered.clamp(self._low, self._high).expand(len(worlds), -1)
        elif self._sampling is None:
            drawn = self._resting.expand(len(worlds), -1)
        else:
            drawn = self._first(worlds, draws, following)
        self.value[worlds] = drawn.clamp(self._resting - self._step, self._resting + self._step)
        self.target[worlds] = drawn

    def advance(self, tick: Tensor, n: int, draws: Callable[[Tensor, Tensor], Draws]) -> Tensor:
        """Move on by n ticks from the worlds' `tick` [B]; `draws` gives those of some worlds at a tick each.

        Returns the commands [B, n + 1, k] in force at these ticks and at the one after.
        """
        stream = self.value[:, None].expand(-1, n + 1, -1)
        steered = self._steered is not None
        if self._sampling is None and not steered:
            return stream
        worlds = offset = torch.empty(0, dtype=torch.int64, device=tick.device)
        if self._sampling is not None and not steered:
            interval = self._sampling.interval_ticks
            ticks = tick[:, None] + torch.arange(1, n + 1, device=tick.device)
            worlds, offset = (ticks % interval == 0).nonzero(as_tuple=True)
        if not len(worlds) and not self._slews and not steered:
            return stream
        stream = stream.clone()
        if len(worlds):
            drawn = self._later(
                worlds,
                draws(worlds, ticks[worlds, offset]),
                lambda: draws(
                    torch.arange(len(tick), device=tick.device), (ticks[:, -1] // interval + 1) * interval
                ),
            )
        for i in range(n):
            if len(worlds):
                now = offset == i
                self.target[worlds[now]] = drawn[now]
            low, high = self.value - self._step, self.value + self._step
            self.value = self.target.clamp(low, high)
            stream[:, i + 1] = self.value
        return stream

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {"value": self.value.clone(), "target": self.target.clone()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        """Continue where `state_dict` was taken."""
        self.value.copy_(saved["value"])
        self.target.copy_(saved["target"])

    def _draw(self, draws: Draws) -> Tensor:
        assert self._sampling is not None
        uniform = draws.uniform("command", len(self._low) + 1)
        command = self._low + (self._high - self._low) * uniform[:, :-1].to(torch.float32)
        command = command * (uniform[:, -1:] >= self._sampling.zero_probability)
        return command.clamp(self._low, self._high)

"""What an environment asks about its randomisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backends import Backend
from ..randomness import Draws
from ..spec.randomization import Randomization
from ..spec.task import TaskSpec
from ..task import Ticks
from ..worlds import Ends
from .delay import DelayLine
from .draw import Field
from .lessons import Lessons
from .physics import RandomPhysics
from .sensors import DrawsAt, RandomSensors
from .timing import Timing


class Randomizer:
    """Owns all that is drawn for B worlds and their episodes; where nothing is given, it does nothing.

    What is drawn depends on (seed, world, episode), and on what a curriculum has learned.
    """

    timing: Timing | None
    """None where all decisions come through at once."""

    def __init__(self, randomization: Randomization, spec: TaskSpec, backend: Backend, num_worlds: int):
        """Find what the names mean; worlds with physics of their own get models of their own.

        Raises:
            AndanteError: a name that the robot model, or the task, does not have.
        """
        device = backend.device
        self._backend = backend
        self._physics = RandomPhysics(randomization, backend.model, spec)
        if self._physics.fields:
            backend.separate()
        tilted = "gravity_tilt" in self._physics.fields
        self._sensors = RandomSensors(randomization, spec, self._physics.encoders, tilted, num_worlds, device)
        self._imperfect = bool(self._sensors.fields) or tilted or bool(randomization.zero_offset)
        action_delay = Field.of(randomization, "action_delay", [""], "value")
        self._actions = None
        if action_delay is not None:
            longest = int(action_delay.most[0])
            self._actions = DelayLine(num_worlds, longest, spec.action_size, device)
        timing = Timing(randomization, num_worlds, device)
        self.timing = timing if timing.fields else None
        self._fields = self._physics.fields | self._sensors.fields | timing.fields
        if action_delay is not None:
            self._fields["action_delay"] = action_delay
        self._rest = torch.tensor(spec.action_middle, device=device)
        choice = randomization.curriculum
        self._lessons = None if choice is None else Lessons(randomization, choice, num_worlds, device)

    def restart(self, worlds: Tensor, draws: Draws) -> None:
        """Draw for the episodes that begin in `worlds` [k]."""
        if self._lessons is not None:
            self._lessons.begin(worlds, draws)
        self._draw(worlds, draws)
        if self._actions is not None:
            self._actions.fill(worlds, self._rest[None])

    def act(self, actions: Tensor) -> Tensor:
        """Actions [B, n, A] that were sent -> those that take effect."""
        return actions if self._actions is None else self._actions.push(actions)

    def begin(
        self, worlds: Tensor, exact: dict[str, Tensor], ticks: Ticks, draws: DrawsAt
    ) -> dict[str, Tensor]:
        """Exact first readings of `worlds` [k] -> those of their sensors."""
        return self._sensors.begin(worlds, exact, ticks, draws) if self._imperfect else exact

    def measure(self, exact: dict[str, Tensor], ticks: Ticks, draws: DrawsAt) -> dict[str, Tensor]:
        """Exact readings of n ticks -> those of the worlds' sensors."""
        return self._sensors.measure(exact, ticks, draws) if self._imperfect else exact

    def learn(self, reward: Tensor, ends: Ends) -> None:
        """Tell the curriculum what came of n ticks."""
        if self._lessons is not None:
            self._lessons.learn(reward, ends)

    def statistics(self) -> dict[str, float]:
        """Figures of the curriculum for a log."""
        return {} if self._lessons is None else self._lessons.statistics()

    def state_dict(self) -> dict[str, Any]:
        """What cannot be drawn again."""
        state: dict[str, Any] = {"sensors": self._sensors.state_dict()}
        if self._actions is not None:
            state["actions"] = self._actions.state_dict()
        if self._lessons is not None:
            state["lessons"] = self._lessons.state_dict()
        return state

    def load_state_dict(self, saved: Mapping[str, Any], worlds: Tensor, draws: Draws) -> None:
        """Continue where `state_dict` was taken, all `worlds` being in the episodes of `draws`."""
        if self._lessons is not None:
            self._lessons.load_state_dict(saved["lessons"])
        self._draw(worlds, draws)
        self._sensors.load_state_dict(saved["sensors"])
        if self._actions is not None:
            self._actions.load_state_dict(saved["actions"])

    def _draw(self, worlds: Tensor, draws: Draws) -> None:
        if not self._fields:
            return
        chosen = {} if self._lessons is None else self._lessons.chosen(worlds)
        counts = [field.draws for field in self._fields.values()]
        uniform = np.split(draws.uniform("randomize", sum(counts)).cpu().numpy(), np.cumsum(counts)[:-1], 1)
        values = {
            name: field.values(own, chosen)
            for (name, field), own in zip(self._fields.items(), uniform, strict=True)
        }
        if self._physics.fields:
            self._backend.write(worlds.tolist(), self._physics.arrays(values))
        if self._imperfect:
            self._sensors.restart(worlds, values)
        if self._actions is not None:
            delay = torch.from_numpy(values["action_delay"][:, 0, 0]).to(worlds.device)
            self._actions.restart(worlds, delay.long())
        if self.timing is not None:
            self.timing.restart(worlds, values)

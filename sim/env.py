"""Parallel worlds of one task, stepped by any number of ticks per call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from .backends import Physics, make_backend, resolve_device
from .commands import Commands
from .levels import WorldLevels
from .observe import Observer
from .pushes import Shoves
from .randomize import Randomizer
from .randomize.timing import Fates, Timing
from .randomness import Ahead, Draws
from .spec.randomization import Randomization
from .spec.start import Start
from .task import ORDERS, Sensors, Task, Ticks, sensor_columns
from .worlds import Ends, check_actions

DIVERGED = 1e6
"""A state value beyond this is physics gone wrong. MuJoCo stops a rollout where a value or an acceleration
passes 1e10; at any sane time step this bound is passed first, so that the length of a call does not show."""


@dataclass(frozen=True)
class Observation:
    """What is known where a decision starts."""

    sources: dict[str, Tensor]
    """What the robot measures: name -> float32 [B, *shape]."""
    critic: Tensor
    """Privileged true state, float32 [B, C]."""


@dataclass(frozen=True)
class Outcome:
    """What n ticks did. A world that ends inside the call is not `valid` until it restarts, at the border."""

    reward: Tensor
    """Of each tick, float32 [B, n]; 0 where not valid."""
    terminated: Tensor
    """The episode ended for good with this tick, bool [B, n]."""
    truncated: Tensor
    """The episode ran out of time with this tick, bool [B, n]; never together with `terminated`."""
    valid: Tensor
    """The tick belongs to the episode that the call started in, bool [B, n]."""
    critic: Tensor
    """True state after each tick, float32 [B, n, C]: at the ending tick the final one, before the restart;
    finite but meaningless where not valid."""
    done: Tensor
    """The world ended inside this call, bool [B]."""
    observation: Observation
    """After restarts: where the next decision starts."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """Mean of each term of the reward over the valid ticks, scalars."""
    diverged: Tensor | None = None
    """The episode ended with this tick because physics left all bounds, bool [B, n]; None where none did."""


class Env:
    """B worlds of a task. Knows ticks, not chunks.

    A world's future depends on (seed, its id, its episode, its actions) alone: not on the other worlds, the
    number of threads or, until its episode ends, how ticks are grouped into calls.
    """

    def __init__(
        self,
        task: Task,
        num_worlds: int,
        seed: int = 0,
        threads: int | None = None,
        world_ids: Tensor | None = None,
        randomization: Randomization | None = None,
        device: str = "cpu",
    ):
        """B = `num_worlds`; `world_ids` int64 [B] key the draws, 0 .. B-1 when None; `device` as of `make`.

        Raises:
            AndanteError: the declaration, or what is to be randomised, and the robot model do not fit; names
                what is missing.
        """
        spec, self.device_name = task.spec, resolve_device(device)
        backend = make_backend(spec, num_worlds, threads, self.device_name)
        model, self.device = backend.model, backend.device
        self.task = task
        self.spec = spec
        self.num_worlds = num_worlds
        self.critic_size = task.critic_size
        self.randomization = randomization or Randomization()
        self.diverged = 0
        """Worlds so far that ended because their physics left all bounds, or stopped."""
        self._backend = backend
        self._functions = task.bind(model)
        self._start = Start(model, spec)
        self._starts = Ahead(self._initial_state)
        self._observer = Observer(spec, model, num_worlds, self.device, self._functions.readings)
        self._commands = Commands(spec, num_worlds, self.device)
        self._shoves = Shoves(spec, model, num_worlds, self.device)
        self._randomizer = Randomizer(self.randomization, spec, backend, num_worlds)
        self._sensors = sensor_columns(model)
        self._step_s = float(model.opt.timestep)
        self._qpos, self._qvel = slice(0, model.nq), slice(model.nq, model.nq + model.nv)
        self._true = slice(1, 1 + model.nq + model.nv)
        self._low, self._high, self._middle = (
            torch.tensor(values, dtype=torch.float32, device=self.device)
            for values in (spec.action_low, spec.action_high, spec.action_middle)
        )
        self._seed = seed
        self._world = (torch.arange(num_worlds) if world_ids is None else world_ids.clone()).to(self.device)
        self._episode = torch.full((num_worlds,), -1, device=self.device)
        self._tick = torch.zeros(num_worlds, dtype=torch.int64, device=self.device)
        self._state = torch.zeros(num_worlds, backend.state_size, dtype=torch.float64, device=self.device)
        self._executed = self._middle.repeat(num_worlds, ORDERS, 1)
        variables = self._functions.variables
        self._levels = WorldLevels(self._functions.levels, num_worlds, self.device)
        self._variables = {
            name: torch.zeros(num_worlds, size, device=self.device)
            for name, size in (variables.sizes if variables else {}).items()
        }

    def reset(self) -> Observation:
        """Start a new episode in every world, at a level of its own where the task has levels."""
        self._levels.begin(self._next_episodes())
        critic = self._restart(torch.arange(self.num_worlds, device=self._tick.device))
        return Observation(self._observer.observe(), critic)

    def step(self, actions: Tensor) -> Outcome:
        """Apply `actions` [B, n, A] (SI units), one per tick; beyond an action's limits they are clipped.

        Raises:
            AndanteError: wrong shape, an action that is not finite, or no episode yet.
        """
        check_actions(actions, self._episode, self.spec.action_size)
        n = actions.shape[1]
        executed = torch.cat((self._executed, actions.clamp(self._low, self._high)), 1)
        command = self._commands.advance(self._tick, n, self._draws)
        forces = self._shoves.forces(self._tick, n, self._draws)
        physics = self._backend.advance(self._state, self._randomizer.act(actions), forces)
        true = self._true_state(physics)
        diverged = self._find_diverged(physics, true)
        if diverged is not None:
            self._hold_last_good(physics, diverged)
            true = self._true_state(physics)
        ticks = self._ticks(true, physics.sensors, executed, command[:, :-1])
        reward, terms = self._functions.score(ticks)
        terminated = self._functions.terminated(ticks)
        if diverged is not None:
            terminated = terminated | diverged
            reward = reward.masked_fill(diverged, 0.0)
        ends = Ends.of(terminated, ticks.tick >= self.spec.episode_ticks)
        # From here on, what a decision after each tick knows.
        ticks = ticks.given(command=command[:, 1:])
        critic = self._functions.critic(ticks).float()
        exact = self._observer.readings(ticks, actions)
        self._observer.update(self._randomizer.measure(exact, ticks, self._draws))
        self._state.copy_(physics.states[:, -1])
        self._executed = executed[:, -ORDERS:]
        self._variables = {name: values[:, -1] for name, values in ticks.variables.items()}
        self._tick += n
        if diverged is not None:
            diverged = diverged & ends.valid
            self.diverged += int(diverged.sum())
        latest = critic[:, -1]
        self._randomizer.learn(reward, ends)
        if ends.done.any():
            restarted = ends.done.nonzero().squeeze(1)
            last = ends.valid[restarted].sum(1) - 1
            final = {name: values[restarted, last] for name, values in ticks.variables.items()}
            self._levels.move(restarted, final, ends.terminated[restarted].any(1))
            latest = latest.index_copy(0, restarted, self._restart(restarted))
        return Outcome(
            reward=reward * ends.valid,
            terminated=ends.terminated,
            truncated=ends.truncated,
            valid=ends.valid,
            critic=critic,
            done=ends.done,
            observation=Observation(self._observer.observe(), latest),
            terms=_means(terms, ends.valid),
            diverged=diverged,
        )

    @property
    def timing(self) -> Timing | None:
        """How decisions are timed in each world; None where nothing holds them up."""
        return self._randomizer.timing

    def decision_fates(self) -> Fates:
        """What happens to decisions that would be made now, in an environment with `timing`."""
        assert self.timing is not None
        worlds = torch.arange(self.num_worlds, device=self._tick.device)
        return self.timing.fates(self._draws(worlds, self._tick))

    def curriculum_statistics(self) -> dict[str, float]:
        """Figures of the curriculum for a log, by name; none without a curriculum."""
        return self._randomizer.statistics()

    def steer(self, command: Tensor | None) -> None:
        """Command all worlds by hand, float32 [k], clamped to its ranges; None: as the task draws it."""
        self._commands.steer(command)

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs; the random draws have no state."""
        return {
            "seed": self._seed,
            "diverged": self.diverged,
            "world": self._world.clone(),
            "episode": self._episode.clone(),
            "tick": self._tick.clone(),
            "state": self._state.clone(),
            "executed": self._executed.clone(),
            "variables": {name: values.clone() for name, values in self._variables.items()},
            "level": self._levels.value.clone(),
            "commands": self._commands.state_dict(),
            "observer": self._observer.state_dict(),
            "randomizer": self._randomizer.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, bit for bit.

        Raises:
            AndanteError: saved by an environment of another size or robot.
        """
        if saved["state"].shape != self._state.shape:
            raise AndanteError(
                f"environment state: expected {list(self._state.shape)}, found {list(saved['state'].shape)}"
            )
        self._seed = saved["seed"]
        self.diverged = saved["diverged"]
        self._world.copy_(saved["world"])
        self._episode.copy_(saved["episode"])
        self._tick.copy_(saved["tick"])
        self._state.copy_(saved["state"])
        self._executed = saved["executed"].to(self.device, copy=True)
        self._variables = {
            name: values.to(self.device, copy=True) for name, values in saved["variables"].items()
        }
        self._levels.value.copy_(saved["level"])
        self._commands.load_state_dict(saved["commands"])
        self._observer.load_state_dict(saved["observer"])
        self._shoves.forget()
        worlds = torch.arange(self.num_worlds, device=self._tick.device)
        begun = self._draws(worlds, torch.zeros_like(self._tick))
        self._randomizer.load_state_dict(saved["randomizer"], worlds, begun)

    def _draws(self, worlds: Tensor, tick: Tensor) -> Draws:
        return Draws(self._seed, self._world[worlds], self._episode[worlds], tick)

    def _next_episodes(self) -> Draws:
        return Draws(self._seed, self._world, self._episode + 1, torch.zeros_like(self._tick))

    def _true_state(self, physics: Physics) -> Tensor:
        """qpos and qvel before the first tick and after each [B, n + 1, nq + nv]."""
        states = physics.states
        shape = (len(states), states.shape[1] + 1, self._true.stop - 1)
        true = torch.empty(shape, dtype=self.task.dtype, device=states.device)
        true[:, 0] = self._state[:, self._true]
        true[:, 1:] = states[..., self._true]
        return true

    def _ticks(self, true: Tensor, sensors: Tensor, executed: Tensor, command: Tensor) -> Ticks:
        ticks = Ticks(
            qpos=true[:, 1:, self._qpos],
            qvel=true[:, 1:, self._qvel],
            sensors=self._by_name(sensors),
            actions=executed,
            command=command,
            tick=self._tick[:, None] + torch.arange(1, true.shape[1], device=true.device),
            variables={},
            qpos_before=true[:, :-1, self._qpos],
            qvel_before=true[:, :-1, self._qvel],
        )
        if self._functions.variables is None:
            return ticks
        return ticks.given(variables=self._functions.variables.over(self._variables, ticks))

    def _by_name(self, sensors: Tensor) -> Sensors:
        return Sensors(sensors.to(self.task.dtype), self._sensors)

    def _find_diverged(self, physics: Physics, true: Tensor) -> Tensor | None:
        """Which ticks have no physics to speak of [B, n], from a world's first one on; None where all have.

        Physics that MuJoCo stopped, because it ran out of room for contacts for example, counts too.
        """
        n, step_s = true.shape[1] - 1, self._step_s
        # If the sum of squares is small, then all are; NaN makes it NaN, and no comparison with that is true.
        late = physics.states[:, -1, 0] - self._state[:, 0] < (n * self.spec.decimation - 0.5) * step_s
        if true.flatten().dot(true.flatten()) < DIVERGED**2 and not late.any():
            return None
        steps = torch.arange(1, n + 1, device=true.device) * self.spec.decimation
        stopped = physics.states[..., 0] - self._state[:, :1] < (steps - 0.5) * step_s
        diverged: Tensor = (~(true[:, 1:].abs() < DIVERGED).all(-1) | stopped).cumsum(1) > 0
        return diverged if diverged.any() else None

    def _hold_last_good(self, physics: Physics, diverged: Tensor) -> None:
        """Replace what diverged in place, so that whatever is computed from it is finite."""
        states, sensors = physics
        for tick in range(states.shape[1]):
            before = states[:, tick - 1] if tick else self._state
            states[:, tick] = torch.where(diverged[:, tick, None], before, states[:, tick])
        worlds = diverged[:, -1].nonzero().squeeze(1)
        held = self._backend.sense(states[worlds, -1], worlds)
        sensors[worlds] = torch.where(diverged[worlds, :, None], held[:, None], sensors[worlds])

    def _restart(self, worlds: Tensor) -> Tensor:
        """Begin the next episode of `worlds` [k]; returns what the critic sees of them [k, C]."""
        self._episode[worlds] += 1
        self._tick[worlds] = 0
        draws = self._draws(worlds, self._tick[worlds])
        self._randomizer.restart(worlds, draws)
        shift = self._levels.place(worlds, draws)
        if shift is None:
            self._state[worlds] = self._starts(worlds, draws, self._next_episodes)
        else:
            self._state[worlds] = self._initial_state(draws, shift)
        self._executed[worlds] = self._middle
        self._commands.restart(worlds, draws, self._next_episodes)
        self._shoves.restart(worlds, draws, self._next_episodes)
        if self._functions.variables is not None:
            for name, values in self._functions.variables.begin(draws).items():
                self._variables[name][worlds] = values.float()
        fresh = self._fresh_ticks(worlds)
        exact = self._observer.readings(fresh, fresh.action)
        self._observer.reset(worlds, self._randomizer.begin(worlds, exact, fresh, self._draws))
        return self._functions.critic(fresh)[:, 0].float()

    def _initial_state(self, draws: Draws, shift: Tensor | None = None) -> Tensor:
        uniform = draws.uniform("initial_state", self._start.draws).cpu().numpy()
        return self._backend.initial_state(
            *self._start(uniform, None if shift is None else shift.cpu().numpy())
        )

    def _fresh_ticks(self, worlds: Tensor) -> Ticks:
        state = self._state[worlds]
        true = state[:, None, self._true].to(self.task.dtype)
        qpos, qvel = true[..., self._qpos], true[..., self._qvel]
        return Ticks(
            qpos=qpos,
            qvel=qvel,
            sensors=self._by_name(self._backend.sense(state, worlds)[:, None]),
            actions=self._middle.repeat(len(worlds), ORDERS + 1, 1),
            command=self._commands.value[worlds, None],
            tick=self._tick[worlds, None],
            variables={name: values[worlds, None] for name, values in self._variables.items()},
            qpos_before=qpos,
            qvel_before=qvel,
        )


def _means(terms: Mapping[str, Tensor], valid: Tensor) -> dict[str, Tensor]:
    means = (torch.stack(list(terms.values())) * valid).sum((1, 2)) / valid.sum()
    return dict(zip(terms, means.float().unbind(), strict=True))

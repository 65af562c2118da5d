"""An agent on a task, live on a web page: real time, episode after episode."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import torch

from andante.sim import make
from andante.sim.env import Env
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import Randomization
from andante.sim.viewer import Viewer

from .agents import make_agent
from .episode import Player, Tick, TimedPlayer, make_player

FRAME_S = 1.0 / 30.0
LONGEST_LIST = 12
"""Elements of a source that are shown, and of the action."""


def watch(
    task: str,
    agent: str,
    seed: int,
    seconds: float | None,
    host: str,
    port: int,
    randomization: Randomization | None = None,
) -> None:
    """Serve the page until its watcher closes it, or for so many `seconds`; see `Viewer` for host and port.

    Raises:
        AndanteError: unknown task or agent, or nobody can listen there.
    """
    spec = get_spec(task)
    acting = make_agent(agent, spec, seed)
    env = make(acting.spec, 1, seed=seed, threads=1, device="cpu", randomization=randomization)
    player = make_player(acting, env)
    session = _Session(player, agent)
    physics = isinstance(player.env, Env)
    with closing(Viewer(spec, f"andante: {task}", physics, host, port)) as viewer:
        print(f"{viewer.url} shows {task}, {agent}; Close there or Ctrl-C here ends it", flush=True)
        session.run(viewer, time.monotonic() + (float("inf") if seconds is None else seconds))
    print(f"{task}, {agent}: {session.ticks} ticks, {session.episodes} whole episodes")


class _Session:
    """What has been played so far."""

    def __init__(self, player: Player | TimedPlayer, agent: str) -> None:
        self.ticks = 0
        self.episodes = 0
        self._player = player
        self._agent = agent
        self._spec = player.env.spec
        self._begin()

    def run(self, viewer: Viewer, end: float) -> None:
        """Play in step with the clock until `end` on it, or until the watcher closes."""
        before, due = time.monotonic(), self._spec.control_dt
        while not viewer.closed and before < end:
            if viewer.take_restart():
                self._player.restart()
                self._begin()
                due = self._spec.control_dt
            rewards = []
            while due >= self._spec.control_dt:
                due -= self._spec.control_dt
                rewards.append(self._tick(viewer).reward)
                if time.monotonic() - before > FRAME_S:
                    # The machine can't keep up: what is late now is left out.
                    due = 0.0
            if self._last is not None:
                viewer.show(self._facts(self._last), rewards, self._last.state)
            time.sleep(max(0.0, before + FRAME_S - time.monotonic()))
            now = time.monotonic()
            due += viewer.playing * viewer.speed * (now - before)
            before = now

    def _begin(self) -> None:
        self._last: Tick | None = None
        self._return, self._tick_of_episode = 0.0, 0

    def _tick(self, viewer: Viewer) -> Tick:
        if isinstance(self._player.env, Env):
            command = viewer.command
            self._player.env.steer(None if command is None else torch.from_numpy(command))
        if self._last is not None and self._last.done:
            self._begin()
        self._last = tick = self._player.tick()
        self.ticks += 1
        self.episodes += tick.done
        self._tick_of_episode += 1
        self._return += tick.reward
        return tick

    def _facts(self, tick: Tick) -> dict[str, str]:
        seconds = self._tick_of_episode * self._spec.control_dt
        return {
            "agent": self._agent,
            "episode": f"{self.episodes + (not tick.done)}, {seconds:.2f} s",
            "return": f"{self._return:.2f}, reward {tick.reward:.3f}",
            **{source.name: _numbers(tick.sources[source.name]) for source in self._spec.sources},
            "action": _numbers(tick.action),
        }


def _numbers(values: np.ndarray) -> str:
    flat = values.ravel()
    shown = " ".join(f"{value:z.2f}" for value in flat[:LONGEST_LIST])
    return shown if len(flat) <= LONGEST_LIST else f"{shown} ... ({len(flat)})"

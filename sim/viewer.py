"""A web page that shows one world as it moves, and takes what its watcher wants."""

from __future__ import annotations

import html
import time
from collections import deque
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
import viser
from numpy.typing import NDArray

from andante.runtime.contract import CommandComponent
from andante.runtime.view.server import Server

from .scene import Scene
from .spec.models import build_model
from .spec.task import TaskSpec

PLOTTED = 500
"""Ticks whose rewards are shown."""
WRITING_S = 0.2
"""Between two updates of text and plot, which cost a browser more than the scene does."""
SPEEDS = (0.1, 4.0)
"""Slowest and fastest, in multiples of real time."""


class Viewer:
    """Serves the page from threads of its own until `close`; whoever moves the world calls `show`."""

    closed: bool
    """The watcher has pressed Close."""
    playing: bool
    """Not paused."""

    def __init__(self, spec: TaskSpec, title: str, physics: bool, host: str = "127.0.0.1", port: int = 8080):
        """Serve at `port`, or the next free one; 0 for any.

        Args:
            spec: what is shown.
            title: of the page.
            physics: whether there is a scene to show; else numbers are all there is.
            host: name or address to listen at; anything but the default lets other machines watch and steer.
            port: of TCP.

        Raises:
            AndanteError: nobody can listen there.
        """
        self._server = Server(host, port, title)
        self.url = self._server.url
        self.closed, self.playing = False, True
        self._restart = False
        self._rewards: deque[float] = deque(maxlen=PLOTTED)
        self._control_dt = spec.control_dt
        self._add_controls()
        source = spec.command_source
        self._hand, self._sliders = self._add_command(() if source is None else source.components)
        self._text = self._server.gui.add_html("")
        self._plot, self._unplotted, self._written = self._add_plot(), False, 0.0
        self._scene = _Scene(self._server, spec) if physics else None

    @property
    def watchers(self) -> int:
        """Pages that are open."""
        return len(self._server.get_clients())

    @property
    def speed(self) -> float:
        """Multiple of real time that the watcher wants."""
        return self._speed.value

    @property
    def command(self) -> NDArray[np.float32] | None:
        """What the watcher commands [k], within the components' ranges; None where the task does."""
        if not self._sliders or not self._hand.value:
            return None
        return np.array([slider.value for slider in self._sliders], np.float32)

    def take_restart(self) -> bool:
        """Whether the watcher has asked for a new episode since the last call."""
        asked, self._restart = self._restart, False
        return asked

    def show(self, facts: Mapping[str, str], rewards: Sequence[float], state: NDArray[np.float64]) -> None:
        """Draw how things stand; called at every frame, paused or not.

        Args:
            facts: what is what.
            rewards: of each tick since the last call.
            state: MuJoCo's full physics state [S]; not looked at without physics.
        """
        self._rewards.extend(rewards)
        self._unplotted |= bool(rewards)
        if self._scene is not None:
            self._scene.show(state)
        now = time.monotonic()
        if now - self._written < WRITING_S:
            return
        self._written = now
        self._text.content = _to_html({**facts, "watched by": str(self.watchers)})
        if self._unplotted:
            self._plot.data, self._unplotted = self._plotted(), False

    def close(self) -> None:
        """Stop serving."""
        self._server.stop()

    def _add_controls(self) -> None:
        gui = self._server.gui
        play = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
        restart = gui.add_button("Restart", icon=viser.Icon.REFRESH)
        close = gui.add_button("Close", icon=viser.Icon.X)
        self._speed = gui.add_slider("Speed", min=SPEEDS[0], max=SPEEDS[1], step=0.1, initial_value=1.0)

        @play.on_click
        def _(event: object) -> None:
            self.playing = not self.playing
            play.label = "Pause" if self.playing else "Play"
            play.icon = viser.Icon.PLAYER_PAUSE if self.playing else viser.Icon.PLAYER_PLAY

        @restart.on_click
        def _(event: object) -> None:
            self._restart = True

        @close.on_click
        def _(event: object) -> None:
            self.closed = True

    def _add_command(
        self, components: tuple[CommandComponent, ...]
    ) -> tuple[viser.GuiCheckboxHandle, list[viser.GuiSliderHandle[float]]]:
        gui = self._server.gui
        with gui.add_folder("Command", visible=bool(components)):
            hand = gui.add_checkbox("By hand", initial_value=False, hint="Else as the task draws it.")
            sliders: list[viser.GuiSliderHandle[float]] = []
            for part in components:
                slider = gui.add_slider(
                    f"{part.name} [{part.unit}]",
                    min=float(part.low),
                    max=float(part.high),
                    step=(part.high - part.low) / 100,
                    initial_value=float(np.clip(part.timeout_value, part.low, part.high)),
                )

                @slider.on_update
                def _(event: object) -> None:
                    hand.value = True  # type: ignore[misc]

                sliders.append(slider)
        return hand, sliders

    def _add_plot(self) -> viser.GuiUplotHandle:
        return self._server.gui.add_uplot(
            self._plotted(),
            (viser.uplot.Series(label="s ago"), viser.uplot.Series(label="reward", stroke="green", width=1)),
            title="reward per tick",
            scales={"x": viser.uplot.Scale(time=False)},
            aspect=2.0,
        )

    def _plotted(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        values = np.array(self._rewards, np.float64)
        return np.arange(-len(values), 0, dtype=np.float64) * self._control_dt, values


class _Scene:
    """The world's state, drawn where it has changed."""

    def __init__(self, server: viser.ViserServer, spec: TaskSpec):
        self._model = build_model(spec)
        self._data = mujoco.MjData(self._model)
        self._shown: NDArray[np.float64] | None = None
        self._scene = Scene(server, self._model)

    def show(self, state: NDArray[np.float64]) -> None:
        if not self._scene.outdated and self._shown is not None and np.array_equal(state, self._shown):
            return
        mujoco.mj_setState(self._model, self._data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(self._model, self._data)
        self._shown = state
        self._scene.draw(self._data)


def _to_html(facts: Mapping[str, str]) -> str:
    lines = (f"<b>{html.escape(name)}</b> {html.escape(value)}" for name, value in facts.items())
    return f'<div style="padding: 0 0.8em; font-size: 0.85em">{"<br/>".join(lines)}</div>'

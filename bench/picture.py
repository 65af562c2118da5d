"""Draws the pictures of the README from the runs of `make demo`.

`docs/quadruped.png` and `docs/quadruped.gif`: how it learned to walk, and that it does;
`docs/pendulum.png`: the swing-up, with memory and without.

    python bench/picture.py [--runs runs/demo] [--docs docs]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import imageio.v2 as imageio
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import mujoco
import numpy as np
from matplotlib.figure import Figure
from walk import forward

from andante.sim.spec.models import build_model
from andante.train.agents import Trained
from andante.train.checkpoint import load_run
from andante.train.episode import play_episode
from andante.train.evaluate import evaluate
from andante.train.metrics import read_metrics

TASK = "pendulum-swingup-blind"
SEED = 7
FRAMES_S = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0)
SHOWN_S = 10.0
STEPS_S = tuple(4.0 + 0.05 * i for i in range(9))
"""Of the quadruped's pictures: one cycle of its gait."""
FILM_S, FILM_RATE = 4.0, 12.5
"""Of the moving picture, and its pictures per second."""
MEMORIES = {"mlp": ("without (mlp)", "0.65"), "gru": ("with memory (gru)", "#29699e")}


def angles_and_torques(run_dir: Path) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Angle at every decision, torque at every tick, and the durations of both."""
    run = load_run(run_dir)
    recording = evaluate(run.policy, TASK, episodes=1, seed=SEED, record=True).recording
    angle = recording.sources["joint_position"][:, 0, 0].numpy()
    torque = recording.actions[:, :, 0, 0].flatten().numpy()
    return angle, torque, run.policy.execution_horizon * run.spec.control_dt, run.spec.control_dt


def frames(angle: np.ndarray, decision_s: float, spec) -> list[np.ndarray]:
    model = build_model(spec)
    data = mujoco.MjData(model)
    pictures = []
    with mujoco.Renderer(model, 360, 270) as renderer:
        for second in FRAMES_S:
            data.qpos[0] = angle[round(second / decision_s)]
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera="main")
            pictures.append(renderer.render())
    return pictures


def draw_pendulum(runs: Path, path: Path) -> None:
    spec = load_run(runs / "gru").spec
    figure = plt.figure(figsize=(10, 5.2), layout="constrained")
    rows = figure.add_gridspec(3, len(FRAMES_S), height_ratios=(2.2, 1.3, 0.9))
    plots = figure.add_subplot(rows[1, :]), figure.add_subplot(rows[2, :])
    for memory, (label, colour) in MEMORIES.items():
        angle, torque, decision_s, tick_s = angles_and_torques(runs / memory)
        upright = np.cos(angle)
        plots[0].plot(np.arange(len(angle)) * decision_s, upright, color=colour, label=label)
        plots[1].step(np.arange(len(torque)) * tick_s, torque, where="post", color=colour, linewidth=0.8)
    titles = [f"{second:g} s" for second in FRAMES_S]
    show(figure, rows, frames(angle, decision_s, spec), titles)
    plots[0].set_ylabel("height of the bob\n(1 = upright)")
    plots[0].legend(loc="upper center", bbox_to_anchor=(0.5, 0.93), ncols=2, frameon=False, fontsize=9)
    plots[0].sharex(plots[1])
    plots[0].tick_params(labelbottom=False)
    plots[1].set(xlabel="seconds", ylabel="torque, N m", xlim=(0, SHOWN_S))
    finish(figure, plots, path)


def draw_quadruped(runs: Path, still: Path, moving: Path) -> None:
    run = load_run(runs / "quadruped")
    agent = Trained(run.policy)
    agent.spec = forward(run.policy.spec)
    episode = play_episode(agent, SEED, ticks=500)
    tick_s = run.spec.control_dt
    film = [FILM_S + i / FILM_RATE for i in range(round(FILM_S * FILM_RATE))]
    pictures = walking(run.spec, episode.states, [round(second / tick_s) for second in (*STEPS_S, *film)])

    figure = plt.figure(figsize=(10, 4.6), layout="constrained")
    rows = figure.add_gridspec(2, len(STEPS_S), height_ratios=(1.0, 1.3))
    show(figure, rows, pictures[: len(STEPS_S)], [f"{second:.2f} s" for second in STEPS_S])
    plots = figure.add_subplot(rows[1, :4]), figure.add_subplot(rows[1, 4:])
    metrics = read_metrics(runs / "quadruped" / "metrics.jsonl")
    evaluated = [(row["ticks"] / 1e6, row["return"]) for row in metrics if "return" in row]
    plots[0].plot(*zip(*evaluated, strict=True), color="#29699e", marker=".")
    plots[0].set(xlabel="million ticks of training", ylabel="return, deterministic")
    speed = np.hypot(*np.diff(episode.states[:, 1:3], axis=0).T) / tick_s
    command = episode.sources["command"][:-1, 0]
    seconds = np.arange(len(speed)) * tick_s
    plots[1].plot(seconds, speed, color="#29699e", linewidth=0.8, label="speed")
    plots[1].plot(seconds, command, color="0.2", linestyle="--", label="commanded")
    plots[1].set(xlabel="seconds", ylabel="m/s", ylim=(0, None))
    plots[1].legend(loc="lower right", frameon=False, fontsize=9)
    finish(figure, plots, still)
    small = [picture[::2, ::2] for picture in pictures[len(STEPS_S) :]]
    imageio.mimsave(moving, small, duration=1e3 / FILM_RATE, loop=0)


def walking(spec, states: np.ndarray, ticks: list[int]) -> list[np.ndarray]:
    model = build_model(spec)
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, int(model.jnt_bodyid[0])
    camera.distance, camera.elevation = 1.5, -12.0
    pictures = []
    with mujoco.Renderer(model, 480, 480) as renderer:
        for tick in ticks:
            state = np.ascontiguousarray(states[tick])
            mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
            mujoco.mj_forward(model, data)
            w, x, y, z = data.qpos[3:7]
            heading = np.degrees(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
            camera.azimuth = heading + 110.0
            renderer.update_scene(data, camera=camera)
            pictures.append(renderer.render())
    return pictures


def show(figure: Figure, rows, pictures: list[np.ndarray], titles: list[str]) -> None:
    for column, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        axes = figure.add_subplot(rows[0, column])
        axes.imshow(picture)
        axes.set_title(title, fontsize=9)
        axes.axis("off")


def finish(figure: Figure, plots, path: Path) -> None:
    for axes in plots:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    draw_quadruped(options.runs, options.docs / "quadruped.png", options.docs / "quadruped.gif")
    draw_pendulum(options.runs, options.docs / "pendulum.png")


if __name__ == "__main__":
    main()

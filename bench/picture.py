"""Draws `docs/pendulum.png` from the runs of `make demo`: the swing-up, with memory and without.

python bench/picture.py [--runs runs/demo] [--output docs/pendulum.png]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import mujoco
import numpy as np

from andante.sim.spec.models import build_model
from andante.train.checkpoint import load_run
from andante.train.evaluate import evaluate

TASK = "pendulum-swingup-blind"
SEED = 7
FRAMES_S = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0)
SHOWN_S = 10.0


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/demo"))
    parser.add_argument("--output", type=Path, default=Path("docs/pendulum.png"))
    options = parser.parse_args()
    spec = load_run(options.runs / "gru").spec

    figure = plt.figure(figsize=(10, 5.2), layout="constrained")
    rows = figure.add_gridspec(3, len(FRAMES_S), height_ratios=(2.2, 1.3, 0.9))
    plots = figure.add_subplot(rows[1, :]), figure.add_subplot(rows[2, :])
    for memory, colour in (("mlp", "0.65"), ("gru", "#29699e")):
        angle, torque, decision_s, tick_s = angles_and_torques(options.runs / memory)
        label = {"gru": "with memory (gru)", "mlp": "without (mlp)"}[memory]
        upright = np.cos(angle)
        plots[0].plot(np.arange(len(angle)) * decision_s, upright, color=colour, label=label)
        plots[1].step(np.arange(len(torque)) * tick_s, torque, where="post", color=colour, linewidth=0.8)
    for column, picture in enumerate(frames(angle, decision_s, spec)):
        axes = figure.add_subplot(rows[0, column])
        axes.imshow(picture)
        axes.set_title(f"{FRAMES_S[column]:g} s", fontsize=9)
        axes.axis("off")
    plots[0].set_ylabel("height of the bob\n(1 = upright)")
    plots[0].legend(loc="upper center", bbox_to_anchor=(0.5, 0.93), ncols=2, frameon=False, fontsize=9)
    plots[0].sharex(plots[1])
    plots[0].tick_params(labelbottom=False)
    plots[1].set(xlabel="seconds", ylabel="torque, N m", xlim=(0, SHOWN_S))
    for axes in plots:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(options.output, dpi=110)


if __name__ == "__main__":
    main()

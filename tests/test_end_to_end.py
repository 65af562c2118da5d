"""What training, export and the runtime must agree on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import run_andante

from andante.runtime import Controller, Sample, load_policy, load_profile
from andante.runtime.states import State
from andante.sim.closed_loop import closed_loop
from andante.train.checkpoint import load_run
from andante.train.evaluate import evaluate

WORLDS = 2


def drive_to_ready(controller: Controller, sample: Sample) -> int:
    """Tick on one sample until `READY`; returns the next tick."""
    controller.warmup()
    controller.activate()
    tick = 0
    while controller.state is not State.READY:
        controller.tick(tick, sample)
        tick += 1
    return tick


def result_of(run_dir: Path) -> dict:
    return json.loads((run_dir / "result.json").read_text())


@pytest.mark.parametrize("task", ["pendulum-swingup-blind", "cartpole-swingup-blind"])
def test_blind_tasks_are_solved_with_memory_and_not_without(task, trained_run, tmp_path):
    with_memory = trained_run
    if task != result_of(trained_run)["task"]:
        with_memory = tmp_path / "gru"
        run_andante("train", task, "--memory", "gru", "--run-dir", with_memory)
    run_andante("train", task, "--memory", "mlp", "--run-dir", tmp_path / "mlp")
    solved, blind = result_of(with_memory), result_of(tmp_path / "mlp")
    # Of 500. Controllers that see the velocities get 399 and 437, the best feedback without them about 50.
    assert solved["return"] > 300
    assert blind["return"] < 100
    assert solved["random_return"] < 10


def test_controller_on_the_samples_of_an_evaluation_gives_its_actions(trained_run, trained_policy):
    run = load_run(trained_run)
    recording = evaluate(run.policy, run.spec.name, WORLDS, seed=11, record=True).recording
    decisions, horizon = recording.actions.shape[:2]
    assert decisions * horizon * WORLDS == 1000
    profile = load_profile("pendulum")
    controller = Controller(load_policy(trained_policy), profile)
    sample = Sample.allocate(profile.signals, len(profile.joints))
    sample.received_ns.update(dict.fromkeys(sample.received_ns, 0))
    for world in range(WORLDS):
        tick = drive_to_ready(controller, sample)
        commanded = np.zeros((decisions, horizon))
        for k in range(decisions):
            sample.values["joint_position"][:] = recording.sources["joint_position"][k, world]
            for i in range(horizon):
                commanded[k, i] = controller.tick(tick, sample).tau_ff[0]
                tick += 1
        assert controller.fault is None
        np.testing.assert_allclose(commanded, recording.actions[:, :, world, 0], rtol=0, atol=1e-5)
        controller.deactivate()


def test_runtime_earns_the_return_of_the_training_s_evaluation(trained_run, trained_policy):
    result = result_of(trained_run)
    run, seed = load_run(trained_run), 12
    trained = evaluate(run.policy, run.spec.name, episodes=8, seed=seed).returns
    loop = closed_loop(trained_policy, run.spec.name, episodes=8, seed=seed)
    assert loop.faults == ()
    scale = trained.mean().item() - result["random_return"]
    np.testing.assert_allclose(loop.returns, trained.to(torch.float64), rtol=0, atol=0.01 * scale)

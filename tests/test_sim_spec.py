"""What tasks declare, and that declaring needs neither torch nor MuJoCo."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import mujoco
import pytest
from conftest import andante

from andante.runtime.errors import AndanteError
from andante.sim.spec import TASKS, get_spec
from andante.sim.spec.describe import describe
from andante.sim.spec.models import build_model
from andante.sim.tasks import TASKS as SIMULATED_TASKS, pendulum

SIMULATED = [task.spec for task in SIMULATED_TASKS.values()]


def changed(task: str, **changes):
    return dataclasses.replace(get_spec(task), **changes)


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_task_listing_needs_neither_torch_nor_mujoco():
    assert not {"torch", "mujoco"} & loaded_after("import andante.sim, andante.sim.spec, andante.train.tasks")


def test_the_simulated_robot_needs_no_torch():
    loaded = loaded_after("import andante.sim.robot")
    assert "torch" not in loaded
    assert "mujoco" in loaded


def test_tasks_command_lists_and_describes(capsys):
    listing = andante("tasks")
    assert listing.returncode == 0
    assert all(name in listing.stdout for name in TASKS)
    described = andante("tasks", "cartpole-swingup-blind")
    assert described.stdout.startswith(describe(get_spec("cartpole-swingup-blind")))
    unknown = andante("tasks", "cartpole")
    assert unknown.returncode == 1
    assert "no task 'cartpole'; tasks: pendulum-swingup-blind, cartpole-swingup-blind" in unknown.stderr


def test_a_tasks_table_has_every_source_action_unit_and_limit():
    table = describe(get_spec("cartpole-swingup-blind")).splitlines()
    assert ["cart_position", "source", "slider", "joint_position", "m"] in [row.split() for row in table]
    assert ["pole_position", "source", "pole", "joint_position", "rad"] in [row.split() for row in table]
    assert ["force", "action", "slider", "effort", "N", "-12", "12"] in [row.split() for row in table]


def test_a_tasks_docstring_is_its_table():
    assert describe(get_spec("pendulum-swingup-blind")) in pendulum.__doc__


@pytest.mark.parametrize("spec", SIMULATED, ids=lambda spec: spec.name)
def test_features_name_declared_sources_and_starts_name_the_models_joints(spec):
    assert {feature.source for feature in spec.features} == {source.name for source in spec.sources}
    model = build_model(spec)
    free = [] if spec.base is None else [spec.base.joint]
    assert [*free, *(start.joint for start in spec.start)] == [model.joint(i).name for i in range(model.njnt)]
    assert model.camera("main").id >= 0


@pytest.mark.parametrize("spec", SIMULATED, ids=lambda spec: spec.name)
def test_actuators_and_time_step_come_from_the_declaration(spec):
    model = build_model(spec)
    assert model.opt.timestep * spec.decimation == pytest.approx(spec.control_dt, rel=1e-15)
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_WARMSTART
    assert [model.actuator(i).name for i in range(model.nu)] == list(spec.actions[0].joints)
    assert model.actuator_ctrlrange[0].tolist() == [spec.actions[0].low[0], spec.actions[0].high[0]]


def test_an_unknown_robot_model_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(AndanteError, match=r"no robot model 'leg'; models: .*cartpole, .*pendulum"):
        build_model(changed("pendulum-swingup-blind", robot_model="leg"))


def test_an_action_on_a_joint_that_the_model_lacks_is_refused_by_name():
    with pytest.raises(AndanteError, match=r"'pendulum' has no joint 'slider' .*it has: hinge"):
        build_model(changed("pendulum-swingup-blind", actions=get_spec("cartpole-swingup-blind").actions))


def test_specs_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_spec("pendulum-swingup-blind").decimation = 4

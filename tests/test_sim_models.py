"""Robot models from declarations: what is added, what is taken away, and what is refused."""

from __future__ import annotations

import dataclasses

import msgspec
import mujoco
import numpy as np
import pytest
import torch
from sled import ACTIONS, MJCF, body_source, sled_spec, sources, term, with_flag

from andante.runtime.errors import AndanteError
from andante.sim.observe import gravity_direction
from andante.sim.spec.models import build_model
from andante.sim.spec.start import Start, surface_height
from andante.sim.spec.task import BaseStart, JointStart


def names(elements) -> list[str]:
    return [element.name for element in elements]


def test_a_model_has_the_declared_actuators_and_no_others(tmp_path):
    model = build_model(sled_spec(tmp_path))
    assert [model.actuator(i).name for i in range(model.nu)] == ["pan", "tilt", "wheel"]
    data = mujoco.MjData(model)
    data.qpos[7:], data.qvel[6:] = [0.3, 0.2, 0.1], [0.5, -0.4, 2.0]
    data.ctrl[:] = [0.9, 0.4, 3.0]
    mujoco.mj_forward(model, data)
    expected = [8.0 * (0.9 - 0.3) - 1.0 * 0.5, 0.4, 0.02 * (3.0 - 2.0)]
    assert data.actuator_force == pytest.approx(expected)
    data.ctrl[:] = [9.0, 9.0, 9.0]
    mujoco.mj_forward(model, data)
    assert data.actuator_force[1] == 0.5


def test_sensors_are_added_once_for_each_kind_and_frame(tmp_path):
    twice = (*sources(history=1), *sources(history=2)[2:5], body_source("gravity", "1", frame="boom"))
    model = build_model(sled_spec(tmp_path, sources=twice))
    assert [model.sensor(i).name for i in range(model.nsensor)] == [
        "angular_velocity/imu",
        "linear_acceleration/imu",
        "gravity/imu",
        "linear_velocity/boom",
        "position/boom",
        "gravity/boom",
    ]


def test_sensors_measure_in_their_frame(tmp_path):
    model = build_model(sled_spec(tmp_path))
    data = mujoco.MjData(model)
    data.qpos[3:7] = [np.cos(0.4), np.sin(0.4), 0, 0]
    data.qvel[3:6] = [0.0, 0.0, 2.0]
    mujoco.mj_forward(model, data)
    # The IMU is turned by 0.2 rad about y against the sled.
    assert data.sensor("angular_velocity/imu").data == pytest.approx([-2 * np.sin(0.2), 0, 2 * np.cos(0.2)])
    matrix = data.site("imu").xmat.reshape(3, 3)
    found = gravity_direction(torch.tensor(data.sensor("gravity/imu").data)).numpy()
    assert found == pytest.approx(matrix.T @ [0, 0, -1])
    assert data.sensor("position/boom").data == pytest.approx(data.body("boom").xpos)


def test_a_tasks_own_sensor_of_that_name_is_kept(tmp_path):
    def edit(spec: mujoco.MjSpec) -> None:
        spec.add_sensor(
            name="gravity/imu",
            type=mujoco.mjtSensor.mjSENS_FRAMEQUAT,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname="imu",
        )

    model = build_model(sled_spec(tmp_path, edit_model=edit))
    assert model.sensor(0).name == "gravity/imu"


@pytest.mark.parametrize(
    ("integrator", "expected"), [("implicitfast", 3), ("RK4", 1), ("Euler", 0), (None, 2)]
)
def test_the_integrator_is_the_tasks_or_the_files_own(tmp_path, integrator, expected):
    def edit(spec: mujoco.MjSpec) -> None:
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICIT

    model = build_model(sled_spec(tmp_path, integrator=integrator, edit_model=edit))
    assert model.opt.integrator == expected


def test_a_batch_of_models_carries_no_textures_and_moves_the_same(tmp_path):
    def paint(spec: mujoco.MjSpec) -> None:
        spec.add_texture(name="wood", builtin=1, width=256, height=256, type=mujoco.mjtTexture.mjTEXTURE_2D)
        material = spec.add_material(name="wood")
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "wood"
        spec.geom("sled").material = "wood"

    spec = sled_spec(tmp_path, edit_model=paint)
    seen, bare = build_model(spec), build_model(spec, visuals=False)
    assert (seen.ntex, bare.ntex, bare.nmat) == (1, 0, 0)
    states = []
    for model in (seen, bare):
        data = mujoco.MjData(model)
        data.qvel[:] = 0.3
        mujoco.mj_step(model, data, 50)
        states.append([*data.qpos, *data.qvel])
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"actions": (term("a", "effort", "hinge", "N m", 1.0),)},
            "'sled' has no joint 'hinge' .action term 'a'.; it has: pan, tilt, wheel",
        ),
        (
            {"actions": (term("a", "effort", "base", "N m", 1.0),)},
            "no joint 'base' .* it has: pan, tilt, wheel",
        ),
        ({"actions": (term("a", "actuator", "mast", "1", 1.0),)}, "no actuator 'mast' .*; it has: $"),
        ({"actions": (ACTIONS[0], ACTIONS[0])}, "acted on twice: pan"),
        (
            {"sources": (body_source("gravity", "1", frame="keel"),)},
            "no site or body 'keel' .source 'gravity of k",
        ),
        ({"robot_model": "/nowhere/sled.xml"}, "/nowhere/sled.xml: no such robot model"),
        ({"robot_model": "sled"}, "no robot model 'sled'; models: .*pendulum"),
    ],
)
def test_what_a_model_lacks_is_named(tmp_path, changes, message):
    with pytest.raises(AndanteError, match=message):
        build_model(sled_spec(tmp_path, **changes))


def test_a_loop_that_the_drive_does_not_close_is_refused(tmp_path):
    spec = sled_spec(tmp_path)
    host = msgspec.structs.replace(ACTIONS[0], closed_by="host")
    with pytest.raises(AndanteError, match="'angle': simulation wants closed_by 'drive', found 'host'"):
        build_model(dataclasses.replace(spec, actions=(host,)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name="tilt" axis', 'name="pan" axis', "robot model 'sled': XML Error: Error: repeated name 'pan'"),
        ("<freejoint", "<loosejoint", "robot model 'sled': XML Error"),
    ],
)
def test_a_broken_mjcf_is_one_line(tmp_path, old, new, message):
    spec = sled_spec(tmp_path)
    (tmp_path / "sled.xml").write_text(MJCF.replace(old, new))
    with pytest.raises(AndanteError, match=message) as caught:
        build_model(spec)
    assert "\n" not in str(caught.value)


def test_a_start_is_uniform_within_its_spread(tmp_path):
    spec = sled_spec(tmp_path)
    spec = dataclasses.replace(spec, base=dataclasses.replace(spec.base, tilt_spread=0.4, angular_spread=0.2))
    model = build_model(spec)
    start = Start(model, spec)
    uniform = np.random.default_rng(0).uniform(size=(4000, start.draws))
    qpos, qvel = start(uniform)
    assert qpos.shape == (4000, model.nq)
    assert np.abs(qpos[:, 7:].mean(0) - 0.1).max() < 0.02
    assert np.abs(qpos[:, 7:] - 0.1).max(0) == pytest.approx([0.3] * 3, rel=0.01)
    assert np.abs(qvel).max(0) == pytest.approx([0.3] * 3 + [0.2] * 3 + [0.5] * 3, rel=0.01)
    assert np.abs(qpos[:, :3]).max(0) == pytest.approx([0.5, 0.5, 0.1], rel=0.01)
    assert np.linalg.norm(qpos[:, 3:7], axis=1) == pytest.approx(np.ones(4000))
    middle = start(np.full((1, start.draws), 0.5))
    assert middle[0][0] == pytest.approx([0, 0, 0.1, 1, 0, 0, 0, 0.1, 0.1, 0.1])
    assert not middle[1].any()


@pytest.mark.parametrize(("draw", "axis"), [(3, 2), (4, 1), (5, 0)])
def test_a_base_is_turned_about_the_declared_axis(tmp_path, draw, axis):
    spec = sled_spec(tmp_path, start=tuple(JointStart(joint, 0, 0, 0) for joint in ("pan", "tilt", "wheel")))
    spec = dataclasses.replace(spec, base=BaseStart("base", (0, 0, 0.1), yaw_spread=1.0, tilt_spread=1.0))
    start = Start(build_model(spec), spec)
    uniform = np.full((1, start.draws), 0.5)
    uniform[0, 6 + draw] = 0.75
    expected = np.zeros(3)
    expected[axis] = 0.5
    found = np.zeros(3)
    mujoco.mju_quat2Vel(found, start(uniform)[0][0, 3:7], 1.0)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": ()}, r"task 'sled': start must list the joints \['pan', 'tilt', 'wheel'\], found \[\]"),
        ({"base": BaseStart("pan", (0, 0, 0))}, "'sled' has no free joint 'pan' .*; it has: base"),
    ],
)
def test_a_start_that_does_not_fit_the_model_is_refused(tmp_path, changes, message):
    spec = sled_spec(tmp_path, **changes)
    with pytest.raises(AndanteError, match=message):
        Start(build_model(spec), spec)


def test_a_base_starts_above_the_terrain(tmp_path):
    def terrain(spec: mujoco.MjSpec) -> None:
        heights = np.zeros((5, 5))
        heights[3, 1] = 1.0
        spec.add_hfield(name="hill", nrow=5, ncol=5, size=(2, 2, 0.5, 0.1), userdata=heights.ravel())
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="hill", pos=(1, 0, 0.2))

    spec = sled_spec(tmp_path, edit_model=terrain, base=BaseStart("base", (0.1, 0.9, 0.3)))
    model = build_model(spec)
    # The peak is at row 3 (y = 1), column 1 (x = -1 from the middle).
    points = np.array([[0.1, 0.9], [0.0, 1.0], [-0.9, 1.1], [2.5, -1.5], [1.2, 0.9]])
    assert surface_height(model, points) == pytest.approx([0.7, 0.7, 0.7, 0.2, 0.2])
    start = Start(model, spec)
    assert start(np.full((1, start.draws), 0.5))[0][0, 2] == pytest.approx(1.0)


def test_the_flag_keeps_what_the_file_says_of_it(tmp_path):
    model = build_model(with_flag(sled_spec(tmp_path)))
    assert model.actuator("flag").gainprm[0] == 0.05
    assert names([model.actuator(i) for i in range(model.nu)]) == ["flag", "pan", "tilt", "wheel"]

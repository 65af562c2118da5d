"""What the velocity task adds to a robot's MJCF: ground, and the sensors that its reward reads."""

from __future__ import annotations

from typing import Any

import mujoco

from andante.runtime.errors import AndanteError

from ..terrain import EDGE, Terrain
from .robot import LeggedRobot

FRICTION = 0.8
FOUND = 1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND)


def edit_model(spec: mujoco.MjSpec, robot: LeggedRobot, terrain: Terrain | None) -> None:
    """Add ground where the model has none, or the terrain on top of it, and the task's sensors for its own.

    Per foot f: `position/f`, `velocity/f` (world), `contact/f`; per joint j: `torque/j`; `contact/base`.

    Raises:
        AndanteError: names the body, site, joint or foot that the MJCF lacks.
    """
    if spec.body(robot.base) is None:
        raise _lacks("base", "body", robot.base, spec.bodies)
    if spec.site(robot.imu) is None and spec.body(robot.imu) is None:
        raise _lacks("imu", "site or body", robot.imu, [*spec.sites, *spec.bodies])
    free = free_joint(spec, robot.base)
    free.name = free.name or "base"
    _ground(spec, terrain)
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    _contact_sensor(spec, "contact/base", mujoco.mjtObj.mjOBJ_BODY, robot.base)
    # Those of a kind are neighbours, so that they are read as one.
    feet = {foot: _kind(spec, foot) for foot in robot.feet}
    for name, sensor in (
        ("position", mujoco.mjtSensor.mjSENS_FRAMEPOS),
        ("velocity", mujoco.mjtSensor.mjSENS_FRAMELINVEL),
    ):
        for foot, kind in feet.items():
            spec.add_sensor(name=f"{name}/{foot}", type=sensor, objtype=kind, objname=foot)
    for foot, kind in feet.items():
        _contact_sensor(spec, f"contact/{foot}", kind, foot)
    for joint in robot.joint_names:
        if spec.joint(joint) is None:
            raise _lacks("joints", "joint", joint, spec.joints)
        spec.add_sensor(
            name=f"torque/{joint}",
            type=mujoco.mjtSensor.mjSENS_JOINTACTFRC,
            objtype=mujoco.mjtObj.mjOBJ_JOINT,
            objname=joint,
        )


def free_joint(spec: mujoco.MjSpec, base: str) -> mujoco.MjsJoint:
    """Of the base.

    Raises:
        AndanteError: there is none.
    """
    for joint in spec.body(base).joints:
        if joint.type == mujoco.mjtJoint.mjJNT_FREE:
            return joint
    raise AndanteError(f"base: body {base!r} of the MJCF has no free joint")


def _ground(spec: mujoco.MjSpec, terrain: Terrain | None) -> None:
    plane = next((g for g in spec.worldbody.geoms if g.type == mujoco.mjtGeom.mjGEOM_PLANE), None)
    if plane is None:
        plane = spec.worldbody.add_geom(
            name="floor",
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            size=[20, 20, 0.05],
            contype=1,
            conaffinity=1,
            friction=[FRICTION, 0.005, 0.0001],
        )
    if terrain is None:
        return
    heights, (x, y) = terrain.heights, terrain.half_size
    # The compiler stretches the data to [0, 1].
    top = float(heights.max()) or 1.0
    spec.add_hfield(
        name="terrain",
        nrow=heights.shape[0],
        ncol=heights.shape[1],
        size=[x, y, top, 1.0],
        userdata=heights.ravel(),
    )
    spec.worldbody.add_geom(
        name="terrain",
        type=mujoco.mjtGeom.mjGEOM_HFIELD,
        hfieldname="terrain",
        contype=plane.contype,
        conaffinity=plane.conaffinity,
        condim=plane.condim,
        friction=plane.friction,
        rgba=plane.rgba,
    )
    # Off the field the robot finds a plane, not an abyss; under it that would add contacts.
    plane.pos[2] = -EDGE


def _kind(spec: mujoco.MjSpec, foot: str) -> mujoco.mjtObj:
    if spec.geom(foot) is not None:
        return mujoco.mjtObj.mjOBJ_GEOM
    if spec.site(foot) is not None:
        return mujoco.mjtObj.mjOBJ_SITE
    if spec.body(foot) is not None:
        return mujoco.mjtObj.mjOBJ_BODY
    raise _lacks("feet", "geom, site or body", foot, [*spec.geoms, *spec.sites, *spec.bodies])


def _contact_sensor(spec: mujoco.MjSpec, name: str, kind: mujoco.mjtObj, target: str) -> None:
    spec.add_sensor(
        name=name,
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=kind,
        objname=target,
        intprm=[FOUND, 0, 1],
    )


def _lacks(key: str, kind: str, name: str, found: list[Any]) -> AndanteError:
    names = ", ".join(sorted({element.name for element in found if element.name}))
    return AndanteError(f"{key}: the MJCF has no {kind} {name!r}; it has {names}")

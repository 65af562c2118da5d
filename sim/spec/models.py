"""Physics models: bodies from the robot's MJCF; rate, actuators and IMU from the declaration."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import mujoco

from andante.runtime.contract import BODY_KINDS, JOINT_KINDS, ActionTerm, Source
from andante.runtime.errors import AndanteError

from .task import TaskSpec

ROBOTS = Path(__file__).parent / "robots"
SCALAR_JOINTS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
SENSORS = {
    "angular_velocity": mujoco.mjtSensor.mjSENS_GYRO,
    "linear_acceleration": mujoco.mjtSensor.mjSENS_ACCELEROMETER,
    "linear_velocity": mujoco.mjtSensor.mjSENS_VELOCIMETER,
    "gravity": mujoco.mjtSensor.mjSENS_FRAMEQUAT,
    "position": mujoco.mjtSensor.mjSENS_FRAMEPOS,
}
"""The MuJoCo sensor behind each kind of source that belongs to a body, named `kind/frame`. Gravity's is a
quaternion, from which its direction is computed."""


def build_model(spec: TaskSpec, visuals: bool = True) -> mujoco.MjModel:
    """Compile a task's robot model with exactly the actuators that its actions declare.

    Warm start is off, so that one long call, many short calls and `mj_step` are bit-equal and a saved state
    is complete; automatic reset is off, so that divergence shows instead of looking like a fresh episode.

    Args:
        spec: the task.
        visuals: keep textures and materials, which a batch of models need not carry.

    Raises:
        AndanteError: names the robot model and what it lacks or has twice, or a loop that the drive does not
            close.
    """
    name = spec.robot_name
    try:
        model = mujoco.MjSpec.from_file(str(_find(spec.robot_model)))
        if spec.edit_model is not None:
            spec.edit_model(model)
        _set_options(model, spec)
        _set_actuators(model, name, spec.actions)
        _add_sensors(model, name, spec.sources)
        if not visuals:
            _strip(model)
        with warnings.catch_warnings():
            # Of Gymnasium's half-cheetah: nothing that who runs it could change.
            warnings.filterwarnings("ignore", "compiler attribute 'settotalmass'")
            return model.compile()
    except (ValueError, RuntimeError) as error:  # MuJoCo's own, over several lines
        raise AndanteError(f"robot model {name!r}: {' '.join(str(error).split())}") from None


def _find(robot_model: str) -> Path:
    path = Path(robot_model)
    if path.is_absolute():
        if not path.is_file():
            raise AndanteError(f"{path}: no such robot model")
        return path
    known = sorted(file.stem for file in ROBOTS.glob("*.xml"))
    if robot_model not in known:
        raise AndanteError(f"no robot model {robot_model!r}; models: {', '.join(known)}")
    return ROBOTS / f"{robot_model}.xml"


def _set_options(model: mujoco.MjSpec, spec: TaskSpec) -> None:
    model.option.timestep = spec.control_period_ns / spec.decimation * 1e-9
    if spec.integrator is not None:
        model.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{spec.integrator.upper()}")
    model.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART | mujoco.mjtDisableBit.mjDSBL_AUTORESET


def _set_actuators(model: mujoco.MjSpec, robot: str, actions: tuple[ActionTerm, ...]) -> None:
    columns = [joint for term in actions for joint in term.joints]
    if repeated := {joint for joint in columns if columns.count(joint) > 1}:
        raise AndanteError(f"acted on twice: {', '.join(sorted(repeated))}")
    kept = {joint for term in actions if term.kind == "actuator" for joint in term.joints}
    # A keyframe holds a control for each of the file's actuators.
    for key in list(model.keys):
        model.delete(key)
    for actuator in list(model.actuators):
        if actuator.name not in kept:
            model.delete(actuator)
    for term in actions:
        if term.kind in ("position", "velocity") and term.closed_by != "drive":
            raise AndanteError(
                f"action term {term.name!r}: simulation wants closed_by 'drive', found {term.closed_by!r}"
            )
        where = f"action term {term.name!r}"
        for column, joint in enumerate(term.joints):
            if term.kind == "actuator":
                _require(robot, "actuator", joint, (each.name for each in model.actuators), where)
                actuator = model.actuator(joint)
            else:
                _require(robot, "joint", joint, _scalar_joints(model), where)
                actuator = model.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
                _close_loop(actuator, term, column)
            actuator.ctrllimited = True
            actuator.ctrlrange = (term.low[column], term.high[column])


def _close_loop(actuator: mujoco.MjsActuator, term: ActionTerm, column: int) -> None:
    """Force = gain * control + bias . [1, q, dq], which is how `drives.Drives` obeys commands, too."""
    if term.kind == "effort":
        return
    kp, kd = term.kp[column], term.kd[column]
    actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    actuator.gainprm[0] = kp if term.kind == "position" else kd
    actuator.biasprm[1] = -kp
    actuator.biasprm[2] = -kd


def _add_sensors(model: mujoco.MjSpec, robot: str, sources: tuple[Source, ...]) -> None:
    present = {sensor.name for sensor in model.sensors}
    for source in sources:
        where = f"source {source.name!r}"
        if source.kind in JOINT_KINDS:
            for joint in source.joints:
                _require(robot, "joint", joint, _scalar_joints(model), where)
        name = f"{source.kind}/{source.frame}"
        if source.kind in BODY_KINDS and name not in present:
            present.add(name)
            _ensure_site(model, robot, source.frame, where)
            model.add_sensor(
                name=name,
                type=SENSORS[source.kind],
                objtype=mujoco.mjtObj.mjOBJ_SITE,
                objname=source.frame,
            )


def _ensure_site(model: mujoco.MjSpec, robot: str, frame: str, where: str) -> None:
    sites, bodies = [site.name for site in model.sites], [body.name for body in model.bodies]
    if frame not in sites:
        _require(robot, "site or body", frame, filter(None, sites + bodies), where)
        model.body(frame).add_site(name=frame, group=4)


def _scalar_joints(model: mujoco.MjSpec) -> Iterable[str]:
    return (joint.name for joint in model.joints if int(joint.type) in SCALAR_JOINTS)


def _require(robot: str, what: str, name: str, known: Iterable[str], where: str) -> None:
    known = list(known)
    if name not in known:
        raise AndanteError(
            f"robot model {robot!r} has no {what} {name!r} ({where}); it has: {', '.join(known)}"
        )


def _strip(model: mujoco.MjSpec) -> None:
    for element in (*model.geoms, *model.sites, *model.tendons):
        element.material = ""
    for element in (*model.materials, *model.textures):
        model.delete(element)

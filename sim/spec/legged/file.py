"""A velocity task from a YAML file that describes the robot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import mujoco

from andante.runtime.contract import NO_ASSERTION
from andante.runtime.errors import AndanteError

from ..models import SCALAR_JOINTS
from ..task import JointStart, TaskSpec
from ..terrain import Terrain
from ..yaml_file import read_yaml
from .model import edit_model
from .robot import LeggedJoint, LeggedRobot
from .spec import velocity_spec

EXAMPLES = Path(__file__).parent


class LeggedFile(LeggedRobot, frozen=True):
    """A robot file's content: the robot, and where its MJCF is."""

    mjcf: str | None = None
    """File, relative to this one."""
    menagerie: str | None = None
    """Name in the package `mujoco-menagerie`, instead of a file; downloaded when first used."""
    rough: bool = False
    """Whether the ground is rough, in rows of rising difficulty, instead of flat."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mjcf is None) == (self.menagerie is None):
            raise ValueError("either mjcf or menagerie must say where the robot model is")


@dataclass(frozen=True)
class LeggedTask:
    """All that the velocity task of one robot file is made of."""

    spec: TaskSpec
    robot: LeggedRobot
    terrain: Terrain | None


def load_legged(name: str) -> LeggedTask:
    """The task `legged/FILE.yaml`: FILE.yaml is a path, from the current folder where it is relative, or an
    example that andante ships.

    Raises:
        AndanteError: names the file, the key, the expected and the found; or what the MJCF lacks.
    """
    path = _find(name)
    file = read_yaml(path, LeggedFile)
    try:
        mjcf, licence = _locate(path, file)
        model = _compile(mjcf, file)
        joints = tuple(_with_target(joint, model) for joint in file.joints)
        robot = msgspec.structs.replace(file, joints=joints, licence=licence)
        base = model.body(file.base)
        spec = velocity_spec(
            name,
            f"walk with the robot of {path.name} as fast as commanded",
            str(mjcf),
            robot,
            _start(model, robot),
            model.joint(base.jntadr[0]).name,
            terrain := Terrain() if file.rough else None,
        )
    except (AndanteError, ValueError) as error:
        raise AndanteError(f"{path}: {error}") from None
    return LeggedTask(spec, robot, terrain)


def _find(name: str) -> Path:
    given = name.removeprefix("legged/")
    for path in (Path(given), EXAMPLES / given):
        if path.is_file():
            return path
    examples = ", ".join(sorted(path.name for path in EXAMPLES.glob("*.yaml")))
    where = "" if Path(given).is_absolute() else f" in {Path.cwd()}"
    raise AndanteError(f"task {name!r}: no file {given!r}{where}; examples: {examples}")


def _locate(path: Path, file: LeggedFile) -> tuple[Path, str]:
    """The MJCF, absolute, and its licence."""
    if file.mjcf is not None:
        mjcf = (path.parent / file.mjcf).resolve()
        if not mjcf.is_file():
            raise AndanteError(f"mjcf: no file {mjcf}")
        return mjcf, file.licence
    try:
        import mujoco_menagerie
    except ImportError:
        raise AndanteError("menagerie: needs the package mujoco-menagerie (andante[menagerie])") from None
    try:
        robot = mujoco_menagerie.get(file.menagerie)
        mjcf = robot.xml(robot.default_model).resolve()
    except (mujoco_menagerie.MenagerieError, OSError) as error:
        raise AndanteError(f"menagerie: {' '.join(str(error).split())}") from None
    return mjcf, robot.license if file.licence == NO_ASSERTION else file.licence


def _compile(mjcf: Path, robot: LeggedRobot) -> mujoco.MjModel:
    try:
        spec = mujoco.MjSpec.from_file(str(mjcf))
        edit_model(spec, robot, None)
        return spec.compile()
    except (ValueError, RuntimeError) as error:  # MuJoCo's own, over several lines
        raise AndanteError(f"{mjcf}: {' '.join(str(error).split())}") from None


def _with_target(joint: LeggedJoint, model: mujoco.MjModel) -> LeggedJoint:
    found = model.joint(joint.name)
    if found.type[0] != mujoco.mjtJoint.mjJNT_HINGE:
        raise AndanteError(f"joints: {joint.name!r} must be a hinge")
    if joint.target is not None:
        return joint
    if not model.jnt_limited[found.id]:
        raise AndanteError(f"joints: {joint.name!r} needs a target range, since the MJCF does not limit it")
    low, high = found.range.tolist()
    return msgspec.structs.replace(joint, target=(low, high))


def _start(model: mujoco.MjModel, robot: LeggedRobot) -> tuple[JointStart, ...]:
    """All hinges and slides in the model's order; those that the robot does not name stay where they are."""
    poses = {joint.name: joint.pose for joint in robot.joints}
    starts = []
    for index in range(model.njnt):
        joint = model.joint(index)
        if joint.type[0] in SCALAR_JOINTS:
            named = joint.name in poses
            position = poses[joint.name] if named else float(model.qpos0[joint.qposadr[0]])
            starts.append(JointStart(joint.name, position, 0.1 if named else 0.0, 0.0))
    return tuple(starts)

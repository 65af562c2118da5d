"""Physics models: geometry and inertia from the robot's MJCF, rate and actuators from the declaration."""

from __future__ import annotations

from pathlib import Path

import mujoco

from andante.runtime.contract import ActionTerm
from andante.runtime.errors import AndanteError

ROBOTS = Path(__file__).parent / "robots"


def build_model(
    robot_model: str, actions: tuple[ActionTerm, ...], control_period_ns: int, decimation: int
) -> mujoco.MjModel:
    """Compile `robots/<robot_model>.xml` with one actuator per action column, in that order.

    Warm start is off, so that one long call, many short calls and `mj_step` are bit-equal and a saved state
    is complete; automatic reset is off, so that divergence shows instead of looking like a fresh episode.

    Raises:
        AndanteError: unknown robot model or joint, or a position loop that the drive does not close.
    """
    path = ROBOTS / f"{robot_model}.xml"
    known = sorted(file.stem for file in ROBOTS.glob("*.xml"))
    if robot_model not in known:
        raise AndanteError(f"no robot model {robot_model!r}; models: {', '.join(known)}")
    spec = mujoco.MjSpec.from_file(str(path))
    spec.option.timestep = control_period_ns / decimation * 1e-9
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART | mujoco.mjtDisableBit.mjDSBL_AUTORESET
    joints = [joint.name for joint in spec.joints]
    for term in actions:
        if term.kind == "position" and term.closed_by != "drive":
            raise AndanteError(
                f"action term {term.name!r}: simulation wants closed_by 'drive', found {term.closed_by!r}"
            )
        for column, joint in enumerate(term.joints):
            if joint not in joints:
                raise AndanteError(
                    f"robot model {robot_model!r} has no joint {joint!r} (action term {term.name!r}); "
                    f"joints: {', '.join(joints)}"
                )
            actuator = spec.add_actuator(
                name=joint,
                target=joint,
                trntype=mujoco.mjtTrn.mjTRN_JOINT,
                ctrllimited=True,
                ctrlrange=(term.low[column], term.high[column]),
            )
            if term.kind == "position":
                actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
                actuator.gainprm[0] = term.kp[column]
                actuator.biasprm[1] = -term.kp[column]
                actuator.biasprm[2] = -term.kd[column]
    return spec.compile()

"""What randomised physics makes of a model's arrays, for any engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from andante.runtime.errors import AndanteError

from ..spec.models import SCALAR_JOINTS
from ..spec.randomization import Randomization
from ..spec.task import TaskSpec
from .draw import Field, Floats
from .rotation import rotate, rotations

FRAME = mujoco.mjtSameFrame
APART = {
    "body": (FRAME.mjSAMEFRAME_BODY.value, FRAME.mjSAMEFRAME_BODYROT.value),
    "geom": (FRAME.mjSAMEFRAME_INERTIA.value, FRAME.mjSAMEFRAME_INERTIAROT.value),
    "site": (FRAME.mjSAMEFRAME_INERTIA.value, FRAME.mjSAMEFRAME_INERTIAROT.value),
}
"""What frames have in common with the body's, or the inertia's, before and after that is shifted: from all to
the orientation. MuJoCo does not look at the position of a frame that coincides with another; from 4.0 on,
`mj_setConst` sees to this itself."""


class Arrays(dict[str, NDArray[Any]]):
    """{name in `MjModel`: [k, ...]}: each the nominal one k times, until it is written to."""

    def __init__(self, model: mujoco.MjModel, worlds: int):
        super().__init__()
        self._model = model
        self._worlds = worlds

    def __missing__(self, name: str) -> NDArray[Any]:
        owner, _, attribute = name.rpartition(".")
        nominal = getattr(self._model.opt if owner else self._model, attribute)
        self[name] = np.repeat(nominal[None], self._worlds, 0)
        return self[name]


class RandomPhysics:
    """The physical fields of a randomisation, for one nominal model."""

    fields: dict[str, Field]

    def __init__(self, randomization: Randomization, model: mujoco.MjModel, spec: TaskSpec):
        """Find what the names mean.

        Raises:
            AndanteError: a body, geom, joint or actuator that the model lacks, a factor on what is zero, or a
                centre of mass that cannot be shifted.
        """
        terms = [(joint, term.kind) for term in spec.actions for joint in term.joints]
        positions = [joint for joint, kind in terms if kind == "position"]
        drives = [joint for joint, kind in terms if kind in ("position", "velocity")]
        joints = [model.joint(i) for i in range(model.njnt) if model.jnt_type[i] in SCALAR_JOINTS]
        measured = [j for source in spec.sources if source.kind == "joint_position" for j in source.joints]
        self.encoders = tuple(dict.fromkeys(measured + positions))
        self._model = model
        self._dofs = np.array([joint.dofadr[0] for joint in joints], np.intp)
        self._positions, self._drives, self._motors = (
            np.array([model.actuator(name).id for name in names], np.intp)
            for names in (positions, drives, [joint for joint, _ in terms])
        )
        self._encoder_of = [self.encoders.index(joint) for joint in positions]
        bodies = [model.body(i).name for i in range(1, model.nbody)]
        known = {
            "mass": ("body", bodies),
            "center_of_mass": ("body", bodies),
            "friction": ("geom", [model.geom(i).name for i in range(model.ngeom)]),
            "kp": ("joint with a position gain", positions),
            "kd": ("joint with a velocity gain", drives),
            "motor_strength": ("driven joint or actuator", [joint for joint, _ in terms]),
            "armature": ("joint", [joint.name for joint in joints]),
            "damping": ("joint", [joint.name for joint in joints]),
            "gravity_tilt": ("gravity", ["gravity"]),
            "zero_offset": ("joint with an encoder", self.encoders),
        }
        components = {"center_of_mass": 3, "gravity_tilt": 2}
        self.fields = {}
        for name, (what, elements) in known.items():
            field = Field.of(randomization, name, elements, what, components.get(name, 1))
            if field is not None:
                self.fields[name] = field
        self._check()

    def arrays(self, values: Mapping[str, Floats]) -> Arrays:
        """From values [k, E, C] of the fields to the arrays of k models; nominal ones change nothing."""
        arrays = Arrays(self._model, len(next(iter(values.values()))))
        for name in self.fields:
            getattr(self, f"_{name}")(arrays, values[name])
        return arrays

    def _mass(self, arrays: Arrays, factor: Floats) -> None:
        arrays["body_mass"][:, 1:] *= factor[..., 0]
        arrays["body_inertia"][:, 1:] *= factor

    def _center_of_mass(self, arrays: Arrays, shift: Floats) -> None:
        arrays["body_ipos"][:, 1:] += shift
        shifted = np.zeros((len(shift), self._model.nbody), bool)
        shifted[:, 1:] = shift.any(-1)
        bodies = {
            "body": np.arange(self._model.nbody),
            "geom": self._model.geom_bodyid,
            "site": self._model.site_bodyid,
        }
        for kind, (together, apart) in APART.items():
            same = arrays[f"{kind}_sameframe"]
            same[shifted[:, bodies[kind]] & (same == together)] = apart

    def _friction(self, arrays: Arrays, factor: Floats) -> None:
        arrays["geom_friction"][:, :, 0] *= factor[..., 0]

    def _kp(self, arrays: Arrays, factor: Floats) -> None:
        arrays["actuator_gainprm"][:, self._positions, 0] *= factor[..., 0]
        arrays["actuator_biasprm"][:, self._positions, 1] *= factor[..., 0]

    def _kd(self, arrays: Arrays, factor: Floats) -> None:
        velocity = ~np.isin(self._drives, self._positions)
        arrays["actuator_gainprm"][:, self._drives[velocity], 0] *= factor[:, velocity, 0]
        arrays["actuator_biasprm"][:, self._drives, 2] *= factor[..., 0]

    def _armature(self, arrays: Arrays, factor: Floats) -> None:
        arrays["dof_armature"][:, self._dofs] *= factor[..., 0]

    def _damping(self, arrays: Arrays, factor: Floats) -> None:
        arrays["dof_damping"][:, self._dofs] *= factor[..., 0]

    def _gravity_tilt(self, arrays: Arrays, angles: Floats) -> None:
        arrays["opt.gravity"][:] = rotate(tilts(angles), arrays["opt.gravity"])

    def _zero_offset(self, arrays: Arrays, offset: Floats) -> None:
        # After the gains: the drive's error is that of what its encoder says, q* - (q + offset).
        bias = arrays["actuator_biasprm"]
        bias[:, self._positions, 0] += bias[:, self._positions, 1] * offset[:, self._encoder_of, 0]

    def _motor_strength(self, arrays: Arrays, factor: Floats) -> None:
        for name in ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"):
            arrays[name][:, self._motors] *= factor
        at_joint = self._model.actuator_trntype[self._motors] == mujoco.mjtTrn.mjTRN_JOINT
        joints = self._model.actuator_trnid[self._motors[at_joint], 0]
        arrays["jnt_actfrcrange"][:, joints] *= factor[:, at_joint]

    def _check(self) -> None:
        model = self._model
        nominal = {
            "mass": model.body_mass[1:],
            "friction": model.geom_friction[:, 0],
            "kp": model.actuator_gainprm[self._positions, 0],
            "kd": model.actuator_biasprm[self._drives, 2],
            "armature": model.dof_armature[self._dofs],
            "damping": model.dof_damping[self._dofs],
        }
        for name, values in nominal.items():
            for entry, elements in self.fields[name].entries if name in self.fields else ():
                if not values[elements].any():
                    raise AndanteError(f"{entry.path}: zero in the robot model, which no factor changes")
        for entry, elements in (
            self.fields["center_of_mass"].entries if "center_of_mass" in self.fields else ()
        ):
            for body in elements + 1:
                if model.body_simple[body]:
                    raise AndanteError(
                        f"{entry.path}: the centre of mass of body {model.body(body).name!r} cannot be "
                        "shifted: MuJoCo relies on its being the body's origin"
                    )


def tilts(angles: Floats) -> Floats:
    """Rotations [k, 3, 3] of gravity, from its field's values [k, 1, 2]."""
    vectors = np.zeros((len(angles), 3))
    vectors[:, :2] = angles[:, 0]
    return rotations(vectors)

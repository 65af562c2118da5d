"""An arm of two joints, for what the robots of `sim/spec` lack: position targets, drives, turned joints.

The policy's joint order is (spin, lift), the robot's (lift, spin, wheel): `lift` is turned and displaced,
`wheel` passive.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from small_policy import write_small_policy

from andante.runtime.contract import ActionTerm, Source
from andante.runtime.policy import PolicySession, load_policy
from andante.runtime.profile import Profile, load_profile

LIFT_OFFSET = 0.5
LIFT_KP, LIFT_KD = 40.0, 2.0
LIFT_RANGE = (-0.5, 1.5)
"""Of the robot's reading; [-1, 1] for the policy, which was trained in [-2, 0.9]."""
EFFORT = {"lift": 10.0, "spin": 3.0}


def arm_policy(path: Path, pd_loop: str = "drive", **changes) -> PolicySession:
    lift = ActionTerm(
        name="lift_target",
        kind="position",
        joints=("lift",),
        unit="rad",
        low=(-2.0,),
        high=(0.9,),
        kp=(LIFT_KP,),
        kd=(LIFT_KD,),
        closed_by=pd_loop,
    )
    spin = ActionTerm(
        name="spin_effort",
        kind="effort",
        joints=("spin",),
        unit="N m",
        low=(-5.0,),
        high=(5.0,),
        kp=(0.0,),
        kd=(0.0,),
        closed_by="drive",
    )
    sources = tuple(
        Source(name=name, kind=kind, joints=("spin", "lift"), unit=unit, max_age_ns=50_000_000)
        for name, kind, unit in (("q", "joint_position", "rad"), ("dq", "joint_velocity", "rad/s"))
    )
    fields = {"robot_model": "arm", "sources": sources, "actions": (spin, lift)} | changes
    return load_policy(write_small_policy(path / "arm.onnx", **fields))


def arm_profile(path: Path, pd_loop: str = "drive", **changes) -> Profile:
    damping = [{"action": "damping", "gains": "damping"}]
    hold = [{"action": "hold", "gains": "hold", "duration_s": 0.1}, *damping]
    keep = [{"action": "keep", "ticks": 3}, *hold]
    joint = {"sign": 1, "zero_offset": 0.0, "position": None, "velocity": 20.0}
    content = {
        "schema": 1,
        "robot_model": "arm",
        "pd_loop": pd_loop,
        "joints": [
            joint
            | {"name": "lift", "actuated": True, "sign": -1, "zero_offset": LIFT_OFFSET}
            | {"position": list(LIFT_RANGE), "effort": EFFORT["lift"]},
            joint | {"name": "spin", "actuated": True, "effort": EFFORT["spin"]},
            joint | {"name": "wheel", "actuated": False, "effort": None},
        ],
        "signals": {"joint_position": {"max_age_s": 0.1}, "joint_velocity": {"max_age_s": 0.03}},
        "gains": {
            "damping": {"kd": {"lift": 4.0, "spin": 1.0}},
            "hold": {"kp": {"lift": 30.0, "spin": 5.0}, "kd": {"lift": 2.0, "spin": 0.5}},
        },
        "confirm": True,
        "start": [
            {"action": "track", "gains": "hold", "duration_s": 0.2, "pose": {"lift": 1.0, "spin": 0.0}}
        ],
        "stop": [{"action": "damping", "gains": "damping", "duration_s": 0.1}],
        "fallback": {
            "stale_source": keep,
            "starvation": keep,
            "overrun": keep,
            "limit": hold,
            "non_finite": damping,
            "e_stop": hold,
        },
    }
    path = path / "arm.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return load_profile(path)

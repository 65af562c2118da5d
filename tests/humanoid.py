"""A policy for the shipped 29-joint robot that reads every kind of source."""

from __future__ import annotations

from pathlib import Path

from small_policy import small_contract, write_small_policy

from andante.runtime.contract import ActionTerm, CommandComponent, Contract, Source, Trained
from andante.runtime.policy import PolicySession, load_policy
from andante.runtime.profile import Profile, load_profile

AGE_NS = 20_000_000
HISTORY = 3
CLOCK_NS = 400_000_000


def humanoid_profile() -> Profile:
    return load_profile("humanoid29")


def humanoid_sources(joints: tuple[str, ...]) -> tuple[Source, ...]:
    """Every kind that a robot has, in the reverse of the profile's joint order."""
    components = tuple(
        CommandComponent(name=name, unit=unit, low=-limit, high=limit, slew=slew)
        for name, unit, limit, slew in (
            ("vx", "m/s", 1.0, 4.0),
            ("vy", "m/s", 0.5, None),
            ("wz", "rad/s", 1.0, None),
        )
    )
    body = {"frame": "pelvis", "max_age_ns": AGE_NS}
    return (
        Source(name="q", kind="joint_position", joints=joints, unit="rad", max_age_ns=AGE_NS),
        Source(
            name="dq", kind="joint_velocity", joints=joints, unit="rad/s", max_age_ns=AGE_NS, history=HISTORY
        ),
        Source(name="gyro", kind="angular_velocity", unit="rad/s", history=HISTORY, **body),
        Source(name="accelerometer", kind="linear_acceleration", unit="m/s^2", **body),
        Source(name="velocity", kind="linear_velocity", unit="m/s", **body),
        Source(name="place", kind="position", unit="m", **body),
        Source(name="gravity", kind="gravity", unit="1", **body),
        Source(name="command", kind="command", unit="", components=components, max_age_ns=200_000_000),
        Source(name="raw", kind="executed_action", unit="", joints=joints, stage="raw"),
        Source(
            name="limited", kind="executed_action", unit="", joints=joints, stage="after_limits", history=2
        ),
        Source(name="committed", kind="committed_actions", unit="", joints=joints, history=2),
        Source(name="phase", kind="clock", unit="1", period_ns=CLOCK_NS),
    )


def humanoid_contract(**changes) -> Contract:
    profile = humanoid_profile()
    joints = tuple(reversed(profile.joint_names))
    limits = {joint.name: joint for joint in profile.joints}
    hold = profile.gains["hold"]
    action = ActionTerm(
        name="targets",
        kind="position",
        joints=joints,
        unit="rad",
        low=tuple(limits[name].position[0] for name in joints),
        high=tuple(limits[name].position[1] for name in joints),
        kp=tuple(hold.kp[name] for name in joints),
        kd=tuple(hold.kd[name] for name in joints),
        closed_by="drive",
        center=tuple(profile.keyframes["stand"][name] for name in joints),
    )
    fields = {
        "robot_model": "humanoid29",
        "control_period_ns": 20_000_000,
        "sources": humanoid_sources(joints),
        "actions": (action,),
        "chunk_size": 6,
        "execution_horizon": Trained(values=(1, 2, 3, 4), default=3),
        "inference_delay": Trained(values=(0, 1), default=0),
    }
    return small_contract(**(fields | changes))


def humanoid_policy(path: Path, **changes) -> PolicySession:
    contract = humanoid_contract(**changes)
    fields = {name: getattr(contract, name) for name in ("robot_model", "sources", "actions", "chunk_size")}
    fields |= {name: getattr(contract, name) for name in ("execution_horizon", "inference_delay")}
    file = write_small_policy(path / "humanoid.onnx", control_period_ns=contract.control_period_ns, **fields)
    return load_policy(file)

"""The parameters of both nodes: name, default (which fixes the type), meaning."""

from __future__ import annotations

from typing import Any, NamedTuple

from andante.runtime import AndanteError


class Parameter(NamedTuple):
    """A ROS parameter."""

    default: bool | int | str
    description: str


_PROFILE = Parameter(
    "", "Robot profile: path of a YAML file, or name of a shipped one; empty for the policy's robot model."
)
_JOINT_STATES = Parameter("joint_states", "Topic of measured joint states (sensor_msgs/JointState).")
_COMMANDS = Parameter("joint_commands", "Topic of joint commands (sensor_msgs/JointState).")

POLICY_NODE = {
    "policy": Parameter("", "Path of the policy file."),
    "profile": _PROFILE,
    "joint_states_topic": _JOINT_STATES,
    "command_topic": _COMMANDS,
    "record": Parameter(
        "",
        "MCAP file for every tick; where there is one, NAME.2.mcap and so on: one for each configuring. "
        "Empty: recordings of faults, where andante's extra is.",
    ),
    "fifo_priority": Parameter(0, "SCHED_FIFO priority of the control thread, 1 to 99; 0 for none."),
    "autostart": Parameter(False, "Configure and activate at launch, without a lifecycle manager."),
}
"""Of `policy_node`; read when it is configured."""

MUJOCO_SIM_NODE = {
    "policy": Parameter("", "Path of the policy file that says robot model, actuators and rate."),
    "profile": _PROFILE,
    "joint_states_topic": _JOINT_STATES,
    "command_topic": _COMMANDS,
    "watchdog_ticks": Parameter(5, "Without a command for this many ticks the actuators give no torque."),
    "seed": Parameter(0, "Seed of the initial state."),
}
"""Of `mujoco_sim_node`; read at launch."""


def declare(node: Any, parameters: dict[str, Parameter]) -> None:
    """Declare `parameters` on an rclpy node.

    Raises:
        AndanteError: the launch set one to a value of another type.
    """
    from rcl_interfaces.msg import ParameterDescriptor
    from rclpy.exceptions import InvalidParameterTypeException

    for name, parameter in parameters.items():
        descriptor = ParameterDescriptor(description=parameter.description)
        try:
            node.declare_parameter(name, parameter.default, descriptor)
        except InvalidParameterTypeException as error:
            raise AndanteError(str(error)) from None


def read(node: Any, parameters: dict[str, Parameter]) -> dict[str, Any]:
    """Present values of declared parameters.

    Raises:
        AndanteError: no policy file is named, or simulated time is asked for.
    """
    if node.get_parameter("use_sim_time").value:
        raise AndanteError("use_sim_time must be false: ticks come from the monotonic clock")
    values = {name: node.get_parameter(name).value for name in parameters}
    if not values["policy"]:
        raise AndanteError("parameter `policy` is empty, expected the path of a policy file")
    return values

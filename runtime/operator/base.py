"""What an operator's device must offer, how one is found by name, and how it deflects a command."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol

from ..command import OperatorInput
from ..contract import CommandComponent, Contract
from ..errors import AndanteError

OPERATORS = {
    "keyboard": ("runtime.operator.keyboard", "Keyboard"),
    "gamepad": ("runtime.operator.gamepad", "Gamepad"),
    "udp": ("runtime.operator.udp", "UdpOperator"),
    "fixed": ("sim.fixed_command", "FixedCommand"),
}
"""Modules of `andante` and classes; what is for simulation only lives with the simulator."""


class OperatorSource(Protocol):
    """A device in an operator's hands."""

    hint: str
    """How it is used, in a line; empty where it has no button to start with."""

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """Fill in what the operator wants at `now_ns`, the sample's clock; at once.

        `start`, `stop` and `e_stop` are those of this poll. A device that is lost is an emergency stop.
        """

    def close(self) -> None:
        """Let go of the device."""


def command_components(contract: Contract) -> tuple[CommandComponent, ...]:
    """What a policy can be commanded."""
    return tuple(component for source in contract.sources for component in source.components)


def open_operator(name: str, components: tuple[CommandComponent, ...]) -> OperatorSource | None:
    """Open a device: `keyboard`, `gamepad[:DEVICE]`, `udp[:HOST:PORT]` or `fixed:VALUES`; None for `none`.

    Raises:
        AndanteError: no such kind, the device is not there, or has too few keys or axes.
    """
    kind, _, where = name.partition(":")
    if name == "none":
        return None
    if kind not in OPERATORS or (kind == "keyboard" and where):
        raise AndanteError(f"no operator's device {name!r}; devices: none, {', '.join(OPERATORS)}")
    module, name = OPERATORS[kind]
    device: Callable[..., OperatorSource] = getattr(importlib.import_module(f"andante.{module}"), name)
    return device(components, where) if where else device(components)


def deflect(component: CommandComponent, deflection: float) -> float:
    """A command from a stick's deflection in [-1, 1]: the timeout value at rest, the trained range's ends."""
    if deflection == 0.0:
        return component.timeout_value
    end = component.high if deflection > 0.0 else component.low
    value = component.timeout_value + abs(deflection) * (end - component.timeout_value)
    return min(max(value, component.low), component.high)

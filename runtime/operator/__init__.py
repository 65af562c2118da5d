"""Where the operator's wishes come from: keyboard, gamepad, or datagrams."""

from __future__ import annotations

from .base import OPERATORS, OperatorSource, command_components, open_operator

__all__ = ["OPERATORS", "OperatorSource", "command_components", "open_operator"]

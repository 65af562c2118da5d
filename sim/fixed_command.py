"""One command all the time, for simulations: nobody's hand is on it."""

from __future__ import annotations

import numpy as np

from andante.runtime.command import OperatorInput
from andante.runtime.contract import CommandComponent
from andante.runtime.errors import AndanteError


class FixedCommand:
    """A command given beforehand, in the contract's units."""

    hint = ""

    def __init__(self, components: tuple[CommandComponent, ...], values: str = "") -> None:
        """`values`: one number per component, separated by commas.

        Raises:
            AndanteError: too few, too many, no number, or outside the range that training covered; or a
                policy that cannot be commanded.
        """
        if not components:
            raise AndanteError(f"fixed command: this policy has no command, found {values!r}")
        names = ", ".join(component.name for component in components)
        try:
            self._command = np.array([float(value) for value in values.split(",")])
        except ValueError:
            raise AndanteError(f"fixed command: expected numbers for {names}, found {values!r}") from None
        if len(self._command) != len(components):
            raise AndanteError(
                f"fixed command: expected {len(components)} values ({names}), found {values!r}"
            )
        for component, value in zip(components, self._command, strict=True):
            if not component.low <= value <= component.high:
                raise AndanteError(
                    f"fixed command: {component.name} must be {component.low:g} to {component.high:g} "
                    f"{component.unit}, found {value:g}"
                )

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """See `OperatorSource`."""
        operator.command[:] = self._command
        operator.command_ns = now_ns

    def close(self) -> None:
        """Nothing is open."""

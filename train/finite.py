"""The guard against going on with numbers that are none."""

from __future__ import annotations

from torch import Tensor

from andante.runtime.errors import AndanteError


class NonFiniteError(AndanteError):
    """Something became NaN or infinite; `name` says what."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not finite")
        self.name = name


def require_finite(name: str, value: Tensor) -> None:
    """Raise `NonFiniteError` unless every element of `value` is finite."""
    if not value.isfinite().all():
        raise NonFiniteError(name)

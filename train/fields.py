"""A run's configuration by the dotted names of its fields, such as `ppo.gamma`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError

from .config import TrainConfig


def require_same(wanted: TrainConfig, saved: TrainConfig, run_dir: Path) -> None:
    """Raise `AndanteError` unless a run has the wanted configuration; names the first field that differs."""
    for name, expected, found in _differences(saved, wanted):
        raise AndanteError(f"{run_dir}: {name} is {expected!r} in this run, found {found!r}")


def with_values(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """A configuration with other values; texts become what the field takes.

    Args:
        config: To change.
        values: {dotted name of a field: value}.

    Raises:
        AndanteError: no such field (lists those that there are), or not one of its values.
    """
    content = msgspec.to_builtins(config)
    for name, value in values.items():
        fields, owner = content, config
        *path, last = name.split(".")
        for key in path:
            fields, owner = _part(name, key, fields, owner)
        _part(name, last, fields, owner)
        fields[last] = value
    try:
        return msgspec.convert(content, TrainConfig, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].rstrip("`")
        raise AndanteError(f"{name}={values.get(name)!r}: {error}") from None


def _part(name: str, key: str, fields: Any, owner: Any) -> tuple[Any, Any]:
    names = owner.__struct_fields__ if isinstance(owner, Record) else ()
    if key not in names:
        known = f"fields: {', '.join(names)}" if names else "it has no fields"
        raise AndanteError(f"no field {key!r} in {name!r}; {known}")
    return fields[key], getattr(owner, key)


def _differences(one: Record, other: Record, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for name in one.__struct_fields__:
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, Record) and type(first) is type(second):
            yield from _differences(first, second, f"{prefix}{name}.")
        elif first != second:
            yield prefix + name, first, second

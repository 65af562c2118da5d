"""YAML files of a `Record`, with errors that tell what the file could have said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml
from msgspec import inspect

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.runtime.strict_yaml import load_yaml

R = TypeVar("R", bound=Record)
UNKNOWN = re.compile(r"unknown field `[^`]*`(?: - at `\$(?P<path>[^`]*)`)?")


def read_yaml(path: Path, kind: type[R]) -> R:
    """Read a file of that kind's fields.

    Raises:
        AndanteError: names the file, the field, the expected and the found; of an unknown field, those that
            there are.
    """
    try:
        return msgspec.convert(load_yaml(path.read_bytes()), kind)
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}") from None
    except (AndanteError, yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise AndanteError(f"{path}: {text}{_known_fields(text, kind)}") from None


def _known_fields(text: str, kind: type[Record]) -> str:
    found = UNKNOWN.search(text)
    if found is None:
        return ""
    types = [inspect.type_info(kind)]
    for field, _ in re.findall(r"\.(\w+)|(\[[^]]*\])", found["path"] or ""):
        types = [part for each in types for part in _parts(each, field)]
    structs = (each for each in types for each in _members(each) if isinstance(each, inspect.StructType))
    names = dict.fromkeys(field.encode_name for struct in structs for field in struct.fields)
    return f"; fields: {', '.join(names)}"


def _members(info: inspect.Type) -> tuple[inspect.Type, ...]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _parts(info: inspect.Type, field: str) -> Iterator[inspect.Type]:
    """What is in a value of that type: under this field, or any element where there is no field's name."""
    for each in _members(info):
        if field and isinstance(each, inspect.StructType):
            yield from (part.type for part in each.fields if part.encode_name == field)
        elif not field and isinstance(each, inspect.VarTupleType):
            yield each.item_type
        elif not field and isinstance(each, inspect.DictType):
            yield each.value_type

"""Rows of numbers as protobuf messages of constant size, whose schema names every number.

Foxglove and PlotJuggler know protobuf; here a message is a template into which a row's bytes are put, so that
every float64 survives bit by bit. Source: protobuf.dev/programming-guides/encoding and the field numbers of
descriptor.proto. For little-endian machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from .protobuf import encode, encode_varint

DOUBLE, INT, BOOL, ENUM = "double", "int", "bool", "enum"
"""Kinds of numbers; an enumeration is written `enum` and its values' names, all separated by spaces."""
Tree = Mapping[str, "Tree | str"]
"""Names of numbers, in groups of any depth, each with its kind."""

PACKAGE = "andante"
"""Of the messages in protobuf."""
_TYPES = {DOUBLE: 1, INT: 16, BOOL: 8, ENUM: 14}
"""Of `FieldDescriptorProto`: double, sfixed64, bool, enum."""
_MESSAGE = 11
_SLOT = 8


class Layout:
    """Where each number of a tree is: in a row of 8-byte slots, in the order of the tree, and in a message.

    A slot holds a float64 for a `double`, and an int64 for everything else.
    """

    schema: bytes
    """Serialised `FileDescriptorSet`."""
    width: int
    """Slots in a row."""

    def __init__(self, name: str, tree: Tree) -> None:
        self.name = f"{PACKAGE}.{name}"
        self.tree = tree
        self._places: dict[tuple[str, ...], slice] = {}
        self._kinds: dict[tuple[str, ...], str] = {}
        self.width = self._place((), tree, 0)
        template, to, come_from = _template(tree, 0)
        self._message = np.frombuffer(template, np.uint8).copy()
        self._to, self._from = np.array(to, np.intp), np.array(come_from, np.intp)
        file = [encode(1, f"{name}.proto".encode()), encode(2, PACKAGE.encode())]
        file += [encode(4, _describe(name, tree, f".{self.name}")), encode(12, b"proto3")]
        self.schema = encode(1, b"".join(file))

    def place(self, *path: str) -> slice:
        """Slots of a number or a group.

        Raises:
            KeyError: there is none.
        """
        return self._places[path]

    def names(self, *path: str) -> tuple[str, ...]:
        """What is directly in a group; nothing where there is no such group."""
        tree: Tree | str = self.tree
        for name in path:
            tree = {} if isinstance(tree, str) else tree.get(name, {})
        return () if isinstance(tree, str) else tuple(tree)

    def kind(self, *path: str) -> str:
        """Of one number: `double`, `int`, `bool` or `enum`.

        Raises:
            KeyError: there is no such number.
        """
        return self._kinds[path]

    def encode(self, row: NDArray[np.float64]) -> bytes:
        """The message of a row `[width]`."""
        self._message[self._to] = row.view(np.uint8)[self._from]
        return self._message.tobytes()

    def decode(self, message: bytes) -> NDArray[np.float64]:
        """The row `[width]` of a message.

        Raises:
            ValueError: a message of another layout.
        """
        found = np.frombuffer(message, np.uint8)
        if found.size != self._message.size:
            raise ValueError(f"a {self.name} of {found.size} bytes, expected {self._message.size}")
        row = np.zeros(_SLOT * self.width, np.uint8)
        row[self._from] = found[self._to]
        return row.view(np.float64)

    def _place(self, path: tuple[str, ...], tree: Tree | str, slot: int) -> int:
        start = slot
        if isinstance(tree, str):
            self._kinds[path] = tree.split()[0]
            slot += 1
        else:
            for name, inner in tree.items():
                slot = self._place((*path, name), inner, slot)
        self._places[path] = slice(start, slot)
        return slot


def _template(tree: Tree, slot: int) -> tuple[bytes, list[int], list[int]]:
    """A message of zeros; which of its bytes come from which of a row that begins at `slot`."""
    message, to, come_from = bytearray(), list[int](), list[int]()
    for number, inner in enumerate(tree.values(), 1):
        if isinstance(inner, str):
            fixed = inner in (DOUBLE, INT)
            size = _SLOT if fixed else 1
            message += encode_varint(number << 3 | (1 if fixed else 0))
            to += range(len(message), len(message) + size)
            come_from += range(_SLOT * slot, _SLOT * slot + size)
            message += bytes(size)
            slot += 1
        else:
            content, places, sources = _template(inner, slot)
            message += encode(number, content)
            to += [len(message) - len(content) + place for place in places]
            come_from += sources
            slot += len({source // _SLOT for source in sources})
    return bytes(message), to, come_from


def _describe(name: str, tree: Tree, scope: str) -> bytes:
    """The `DescriptorProto` of a message, with those of the groups in it."""
    parts = [encode(1, name.encode())]
    for number, (field, inner) in enumerate(_identifiers(tree), 1):
        kind = _MESSAGE if not isinstance(inner, str) else _TYPES[inner.split()[0]]
        described = encode(1, field.encode()) + _integer(3, number) + _integer(4, 1) + _integer(5, kind)
        if kind in (_MESSAGE, _TYPES[ENUM]):
            described += encode(6, f"{scope}.Type_{field}".encode())
        parts.append(encode(2, described))
        if not isinstance(inner, str):
            parts.append(encode(3, _describe(f"Type_{field}", inner, f"{scope}.Type_{field}")))
        elif kind == _TYPES[ENUM]:
            values = (
                encode(2, encode(1, value.encode()) + _integer(2, i))
                for i, value in enumerate(inner.split()[1:])
            )
            parts.append(encode(4, encode(1, f"Type_{field}".encode()) + b"".join(values)))
    return b"".join(parts)


def _identifiers(tree: Tree) -> Iterator[tuple[str, Tree | str]]:
    """A tree's entries under names that protobuf allows."""
    taken: set[str] = set()
    for name, inner in tree.items():
        field = re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name, flags=re.ASCII))
        while field in taken:
            field += "_"
        taken.add(field)
        yield field, inner


def _integer(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)

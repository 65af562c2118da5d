"""Reading the protobuf wire format, as far as an ONNX file needs it: no onnx package at run time.

Source: protobuf.dev/programming-guides/encoding and the field numbers of onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_FIXED_SIZE = {1: 8, 5: 4}

_CHILDREN = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Which fields of which message hold the messages that can lead to a tensor."""


class Field(NamedTuple):
    """One field of a message: its number, all its bytes, and its value."""

    number: int
    """Of the field in its message."""
    raw: memoryview
    """All its bytes, key included."""
    value: int | memoryview
    """Payload; a number for a varint."""

    @property
    def payload(self) -> memoryview:
        """The bytes of a length-delimited field.

        Raises:
            ValueError: the field is a number.
        """
        if isinstance(self.value, int):
            raise ValueError(f"field {self.number} is a number, expected bytes")
        return self.value


def scan(message: memoryview) -> Iterator[Field]:
    """The fields of one message, in file order.

    Raises:
        ValueError: these bytes are no complete message.
    """
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or wire_type not in (0, 1, 2, 5):
            raise ValueError(f"impossible tag {tag} at byte {start}")
        value: int | memoryview
        if wire_type == 0:
            value, at = _varint(message, at)
        else:
            size = _FIXED_SIZE.get(wire_type)
            if size is None:
                size, at = _varint(message, at)
            if size > len(message) - at:
                raise ValueError(f"field {number} needs {size} bytes, {len(message) - at} are left")
            value = message[at : at + size]
            at += size
        yield Field(number, message[start:at], value)


def has_external_data(message: memoryview, kind: str = "model") -> bool:
    """Whether any tensor keeps its values in another file (`external_data`, or `data_location` EXTERNAL)."""
    children = _CHILDREN[kind]
    for field in scan(message):
        if kind == "tensor" and (field.number == 13 or (field.number == 14 and field.value == 1)):
            return True
        if (child := children.get(field.number)) and has_external_data(field.payload, child):
            return True
    return False


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("ends inside a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"number longer than 10 bytes at byte {at}")

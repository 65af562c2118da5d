"""Writing the protobuf wire format.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations


def encode(number: int, payload: bytes | memoryview) -> bytes:
    """A length-delimited field."""
    return b"".join((encode_varint(number << 3 | 2), encode_varint(len(payload)), payload))


def encode_varint(value: int) -> bytes:
    """A number that is not negative."""
    if value <= 0x7F:
        return bytes([value])
    return bytes([value & 0x7F | 0x80]) + encode_varint(value >> 7)

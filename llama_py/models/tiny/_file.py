"""Writes a GGUF file of F32 tensors, byte for byte the same everywhere."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 32
_ARRAY = 9
_SCALARS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}  # GGUF's number of a type, its bytes
_NEGATIVE = (5, "<i")
_F32 = 0


def gguf(metadata: Mapping[str, Any], tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Whole numbers are u32, or i32 where one is negative."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = bytearray()
    for name, array in tensors.items():
        ne = array.shape[::-1]
        while len(ne) > 1 and ne[-1] == 1:
            ne = ne[:-1]
        head += _text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, _F32, len(data))
        data += array.astype("<f4").tobytes()
        data += bytes(-len(data) % _ALIGNMENT)
    return head + bytes(-len(head) % _ALIGNMENT) + bytes(data)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    number, form = _kind(items)
    raw = b"".join(_text(item) if form == "" else struct.pack(form, item) for item in items)
    if items is not value:
        return struct.pack("<I", number) + raw
    return struct.pack("<IIQ", _ARRAY, number, len(items)) + raw


def _kind(items: Sequence[Any]) -> tuple[int, str]:
    if isinstance(items[0], str):
        return 8, ""
    if type(items[0]) is int and min(items) < 0:
        return _NEGATIVE
    return _SCALARS[type(items[0])]

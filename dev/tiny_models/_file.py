"""Writes a GGUF file of F32, I32 and I64 tensors, byte for byte the same everywhere."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.tiny_models import Wide

_ALIGNMENT = 32
_ARRAY = 9
# GGUF's number of a type, its bytes
_SCALARS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f"), np.float64: (12, "<d")}
_NEGATIVE = (5, "<i")
_WIDE = (10, "<Q")
_TYPES = {"f": (0, "<f4"), "i4": (26, "<i4"), "i8": (27, "<i8")}  # GGUF's number, NumPy's type


def gguf(metadata: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a GGUF file. Integers are u32, or i32 if any is negative, or u64 for `Wide`."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = bytearray()
    for name, array in tensors.items():
        ne = array.shape[::-1]
        while len(ne) > 1 and ne[-1] == 1:
            ne = ne[:-1]
        whole = array.dtype in (np.int32, np.int64)
        number, form = _TYPES[f"i{array.dtype.itemsize}" if whole else "f"]
        head += _text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, number, len(data))
        data += array.astype(form).tobytes()
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
    if isinstance(items[0], Wide):
        return _WIDE
    if type(items[0]) is int and min(items) < 0:
        return _NEGATIVE
    return _SCALARS[type(items[0])]

"""Writing of GGUF files: key-values by their exact bytes, tensors unchanged (gguf.cpp:gguf_write).

replace_file("out.gguf", content(file.metadata.stored_values | {"general.name": encode("str", "x")},
                                 file.tensors.values()))
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ggml_py.errors import GGUFError
from ggml_py.types import GGMLType
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.metadata import ARRAY, KINDS, STRING, scalar

VERSION = 3
ALIGNMENT = "general.alignment"


def encode(kind: str, value: Any) -> bytes:
    """Encode a value: its type and its bytes.

    kind   "str", "bool", "u32", "f32", ..., or of an array "arr[u32]"

    Raises GGUFError for an unknown kind, or a value of another kind.
    """
    if kind.startswith("arr[") and kind.endswith("]"):
        item = kind[4:-1]
        items = [encode(item, v) for v in value]
        n = len(items)
        head = struct.pack("<IIQ", ARRAY, _id(item), n)
        return head + b"".join(raw[4:] for raw in items)
    number = _id(kind)
    if number == STRING:
        if not isinstance(value, str):
            raise GGUFError(f"value must be a string for type str, got {value!r}")
        raw = value.encode("utf-8", "surrogateescape")
        return struct.pack("<IQ", STRING, len(raw)) + raw
    try:
        return struct.pack("<I", number) + scalar(number).pack(value)
    except (struct.error, OverflowError, TypeError):
        raise GGUFError(f"value must be of type {kind}, got {value!r}") from None


class TensorEntry(Protocol):
    """A tensor's entry in the header; `dims` is its shape in ggml's order."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> GGMLType: ...
    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...


def head(stored: Mapping[str, bytes], tensors: Sequence[TensorEntry], alignment: int) -> bytes:
    """Return the header before the tensors' data, padded."""
    out = [b"GGUF", struct.pack("<IQQ", VERSION, len(tensors), len(stored))]
    for key, value in stored.items():
        out += [_string(key), value]
    offset = 0
    for t in tensors:
        ne = t.dims
        out += [_string(t.name), struct.pack(f"<I{len(ne)}q", len(ne), *ne)]
        out.append(struct.pack("<IQ", t.type.id, offset))
        offset += _pad(t.nbytes, alignment)
    raw = b"".join(out)
    return raw + bytes(-len(raw) % alignment)


def content(
    stored: Mapping[str, bytes], tensors: Iterable[TensorInfo]
) -> Iterator[bytes | memoryview]:
    """Yield a whole file in pieces, one per tensor.

    stored   key-values in the format of `encode` or of a file (`Metadata.stored_values`)
    """
    tensors = [t.as_stored() for t in tensors]
    alignment = read_alignment(stored)
    yield head(stored, tensors, alignment)
    for t in tensors:
        yield t.data.data
        t.let_go()
        yield bytes(-t.nbytes % alignment)


def read_alignment(stored: Mapping[str, bytes]) -> int:
    raw = stored.get(ALIGNMENT, encode("u32", 32))
    (found,) = struct.unpack_from("<I", raw, 4) if len(raw) == 8 else (0,)
    if raw[:4] != struct.pack("<I", KINDS["u32"]):
        kind = next((k for k, n in KINDS.items() if raw[:4] == struct.pack("<I", n)), "unknown")
        raise GGUFError(f"{ALIGNMENT} must be a power of two of type u32, got type {kind}")
    if found <= 0 or found & (found - 1):
        raise GGUFError(f"{ALIGNMENT} must be a power of two of type u32, got {found}")
    return int(found)


def n_bytes(stored: Mapping[str, bytes], tensors: Iterable[TensorInfo]) -> int:
    """Return the size of the file that they make."""
    tensors, alignment = [t.as_stored() for t in tensors], read_alignment(stored)
    data = sum(_pad(t.nbytes, alignment) for t in tensors)
    return len(head(stored, tensors, alignment)) + data


def _id(kind: str) -> int:
    if kind not in KINDS or kind == "arr":
        raise GGUFError(f"unknown value type {kind!r}; known: {', '.join(KINDS)}")
    return KINDS[kind]


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _pad(n: int, alignment: int) -> int:
    return math.ceil(n / alignment) * alignment

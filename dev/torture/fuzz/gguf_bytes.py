"""GGUF files byte by byte, which can also be malformed.

    gguf([kv("general.name", "str", "small")], [Tensor("w", (32, 2), 8, data)])

Every count and length accepts a false value (`n=...`, `n_kv=...`), every type id a wrong one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SCALARS = {
    "u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"),
    "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"),
    "f64": (12, "<d"),
}  # fmt: skip
KINDS = {name: kind for name, (kind, _) in SCALARS.items()} | {"str": 8, "arr": 9}


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def string(text: str | bytes, n: int | None = None) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return u64(len(raw) if n is None else n) + raw


def encode(kind: str, value: Any) -> bytes:
    """Return a value's bytes; for an array, `value` is the result of `array`."""
    if kind == "arr":
        return bytes(value)
    return string(value) if kind == "str" else struct.pack(SCALARS[kind][1], value)


def array(kind: str, items: Iterable[Any], n: int | None = None) -> bytes:
    encoded = [encode(kind, item) for item in items]
    return u32(KINDS[kind]) + u64(len(encoded) if n is None else n) + b"".join(encoded)


def kv(key: str | bytes, kind: str, value: Any) -> bytes:
    return string(key) + u32(KINDS[kind]) + encode(kind, value)


@dataclass
class Tensor:
    """`offset` None: right after the previous tensor; `n_dims` None: the length of `ne`."""

    name: str | bytes
    ne: Sequence[int] = (1,)
    type_id: int = 0
    data: bytes = bytes(4)
    offset: int | None = None
    n_dims: int | None = None

    def info(self, offset: int) -> bytes:
        n_dims = len(self.ne) if self.n_dims is None else self.n_dims
        ne = struct.pack(f"<{len(self.ne)}q", *self.ne)
        at = offset if self.offset is None else self.offset
        return string(self.name) + u32(n_dims) + ne + u32(self.type_id) + u64(at)


def pieces(
    kvs: Sequence[bytes] = (),
    tensors: Sequence[Tensor] = (),
    *,
    alignment: int = 32,
    version: int = 3,
    magic: bytes = b"GGUF",
    n_kv: int | None = None,
    n_tensors: int | None = None,
) -> list[bytes]:
    """Return a whole file, cut at the end of each element. The layout uses `alignment`; its key is
    not written."""
    infos, data, offset = [], [], 0
    for tensor in tensors:
        infos.append(tensor.info(offset))
        padding = -len(tensor.data) % alignment
        data += [tensor.data, bytes(padding)]
        offset += len(tensor.data) + padding
    counts = [u64(len(tensors) if n_tensors is None else n_tensors)]
    counts.append(u64(len(kvs) if n_kv is None else n_kv))
    head = [magic, u32(version), *counts, *kvs, *infos]
    return [*head, bytes(-sum(map(len, head)) % alignment), *data]


def gguf(kvs: Sequence[bytes] = (), tensors: Sequence[Tensor] = (), **how: Any) -> bytes:
    """Return the joined `pieces`."""
    return b"".join(pieces(kvs, tensors, **how))

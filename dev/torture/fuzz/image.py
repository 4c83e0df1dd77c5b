"""GGUF file as separate parts; each can be changed to a valid or invalid value."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dev.torture.fuzz.gguf_bytes import Tensor, array, kv, pieces, string, u32
from dev.torture.fuzz.numbers import kind_of, shown

I32 = 26  # GGUF's type number


@dataclass
class Items:
    """Array of values; `n` is its declared length. Values of kind "arr" are Items."""

    kind: str
    values: list[Any]
    n: int | None = None

    def bytes(self) -> bytes:
        if self.kind == "arr":
            return array("arr", [v.bytes() for v in self.values], self.n)
        return array(self.kind, self.values, self.n)

    def __str__(self) -> str:
        said = "" if self.n is None else f", declared as {self.n}"
        return f"{len(self.values)} {self.kind}{said} {shown(self.values[:4])}"


@dataclass
class Pair:
    """Metadata key and value; `raw` bytes after the key replace its type and value."""

    key: str | bytes
    kind: str
    value: Any
    raw: bytes | None = None

    def bytes(self) -> bytes:
        if self.raw is not None:
            return string(self.key) + self.raw
        if isinstance(self.value, Items):
            return string(self.key) + u32(9) + self.value.bytes()
        return kv(self.key, self.kind, self.value)

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, Items) else shown(self.value)
        return f"{shown(self.key)} = {self.kind} {value}"


@dataclass
class Image:
    """Parts of a GGUF file.

    end   length of a truncated file; None: complete
    more  bytes after the end of the file
    """

    pairs: list[Pair] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    alignment: int = 32
    version: int = 3
    magic: bytes = b"GGUF"
    n_kv: int | None = None
    n_tensors: int | None = None
    end: int | None = None
    more: bytes = b""
    patches: list[tuple[int, bytes]] = field(default_factory=list)

    def pieces(self) -> list[bytes]:
        return pieces(
            [pair.bytes() for pair in self.pairs],
            self.tensors,
            alignment=self.alignment,
            version=self.version,
            magic=self.magic,
            n_kv=self.n_kv,
            n_tensors=self.n_tensors,
        )

    def bytes(self) -> bytes:
        content = b"".join(self.pieces())
        if self.patches:
            changed = bytearray(content)
            for at, raw in self.patches:
                changed[at : at + len(raw)] = raw
            content = bytes(changed)
        return (content if self.end is None else content[: self.end]) + self.more

    def pair(self, key: str) -> Pair | None:
        return next((p for p in self.pairs if p.key == key), None)

    def set(self, pair: Pair) -> None:
        """Replace the pair with that key, or append it."""
        for i, old in enumerate(self.pairs):
            if old.key == pair.key:
                self.pairs[i] = pair
                return
        self.pairs.append(pair)

    def copy(self) -> Image:
        """Return a copy that can be changed; it shares the tensors' bytes."""
        return replace(
            self,
            pairs=[replace(p) for p in self.pairs],
            tensors=[replace(t) for t in self.tensors],
            patches=list(self.patches),
        )


def pairs_of(metadata: Mapping[str, Any]) -> list[Pair]:
    """Return pairs for Python values: lists become arrays of their first item's type."""
    return [_pair(key, value) for key, value in metadata.items()]


def _pair(key: str, value: Any) -> Pair:
    if isinstance(value, np.ndarray):
        kind = {"i": "i", "u": "u", "f": "f"}[value.dtype.kind] + str(8 * value.dtype.itemsize)
        return Pair(key, "arr", Items(kind, value.tolist()))
    if isinstance(value, list | tuple):
        return Pair(key, "arr", Items(_kind_of_all(value), list(value)))
    return Pair(key, kind_of(value), value)


def _kind_of_all(values: Sequence[Any]) -> str:
    """Return the smallest type of 32 bits or more that fits all integers of an array."""
    whole = [v for v in values if isinstance(v, int)]
    if any(v >= 2**32 for v in whole):
        return "u64"
    return "i32" if any(v < 0 for v in whole) else kind_of(values[0]) if values else "u32"


def tensors_of(
    shapes: Mapping[str, Sequence[int]], data: Mapping[str, bytes], whole: Container[str] = ()
) -> list[Tensor]:
    """Return tensors, I32 for names in `whole`, else F32; drop dimensions of 1 at the end."""
    found = []
    for name, ne in shapes.items():
        sizes = list(ne)
        while len(sizes) > 1 and sizes[-1] == 1:
            sizes.pop()
        found.append(Tensor(name, tuple(sizes), I32 if name in whole else 0, data[name]))
    return found

"""Conversion between rows of a state and the parts of several devices, so that saved states do not
depend on the split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ggml_py.backend import Bytes
from ggml_py.tensor import Tensor
from llama_py.memory.base import read_part, write_part
from llama_py.memory.io import StateReader, StateWriter

Sizes = Sequence[Sequence[int]]  # bytes of the sections of each part
Whole = tuple[Sequence[Tensor], Sizes]  # the parts of a layer's rows


def join(parts: Sequence[Bytes], sections: Sizes) -> Bytes:
    """Join parts into one row: section by section, each with the parts in order."""
    pairs = zip(parts, sections, strict=True)
    cuts = [np.split(part, np.cumsum(sizes)[:-1]) for part, sizes in pairs]
    return np.concatenate([piece for section in zip(*cuts, strict=True) for piece in section])


def cut(row: Bytes, sections: Sizes) -> list[Bytes]:
    """Split a row made by `join` into its parts."""
    sizes = [size for section in zip(*sections, strict=True) for size in section]
    pieces = np.split(row, np.cumsum(sizes)[:-1])
    n = len(sections)
    return [np.concatenate(pieces[i::n]) for i in range(n)]


def write_row(io: StateWriter, wholes: Iterable[Whole], row: int) -> None:
    """Write a row of each layer."""
    for tensors, sections in wholes:
        io.blob(join([read_part(t, row * t.nb[1], t.nb[1]) for t in tensors], sections))


def read_row(io: StateReader, wholes: Iterable[Whole], row: int) -> None:
    """Read a row that `write_row` has written."""
    for tensors, sections in wholes:
        parts = cut(io.blob(sum(t.nb[1] for t in tensors)), sections)
        for t, part in zip(tensors, parts, strict=True):
            write_part(t, row * t.nb[1], part)

"""A row of a state out of the parts that several devices have of it, and back: saved states do not
depend on the split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.backend import Bytes

Sizes = Sequence[Sequence[int]]  # of each part the bytes of its sections


def join(parts: Sequence[Bytes], sections: Sizes) -> Bytes:
    """Every section whole, one after another: of each first what the first part has."""
    pairs = zip(parts, sections, strict=True)
    cuts = [np.split(part, np.cumsum(sizes)[:-1]) for part, sizes in pairs]
    return np.concatenate([piece for section in zip(*cuts, strict=True) for piece in section])


def cut(row: Bytes, sections: Sizes) -> list[Bytes]:
    """The parts of what `join` made."""
    sizes = [size for section in zip(*sections, strict=True) for size in section]
    pieces = np.split(row, np.cumsum(sizes)[:-1])
    n = len(sections)
    return [np.concatenate(pieces[i::n]) for i in range(n)]

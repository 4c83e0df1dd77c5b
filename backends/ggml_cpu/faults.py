"""Indices that a kernel finds among its data and may not use: it notes the first one, and skips
what the index would name; the program raises it after the run.

A parameter block's word FAULT has the address of the program's record, int64 words: how many were
found, and of the first the address of the parameter block, the index, and of how many it had to be;
then the address of another record, where bounds are checked (bounds/).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

FAULT = 3
FOUND, BLOCK, INDEX, LIMIT, BOUNDS, WORDS = 0, 1, 2, 3, 4, 8


def new_record() -> NDArray[np.int64]:
    """A record without faults; its words share a cache line with nothing else that is written."""
    return np.zeros(WORDS, np.int64)


@fn
def note(p, index, n):
    """Threads may come at once: the first has the record to itself."""
    record = v.ld_i64(p + 8 * FAULT)
    if v.atomic_add(record + 8 * FOUND, 1) == 0:
        v.st_i64(record + 8 * BLOCK, p)
        v.st_i64(record + 8 * INDEX, index)
        v.st_i64(record + 8 * LIMIT, n)


@fn
def in_range(p, index, n):
    """Whether an index is in range(n); it is noted where not."""
    if index >= 0 and index < n:
        return True
    note(p, index, n)
    return False


@fn
def index_or_0(p, index, n):
    """An index in range(n), n > 0: what is given, or 0 for one to be noted."""
    return index if in_range(p, index, n) else 0

"""Records out-of-range indices in a kernel's data, such as token ids or row numbers.

The kernel records the first bad index and skips its element; the program raises OutOfRange after
the run. Word FAULT of a parameter block is the address of the program's record, int64 words:

| word   | content                                                               |
|--------|-----------------------------------------------------------------------|
| FOUND  | number of bad indices                                                 |
| BLOCK  | address of the parameter block of the first bad index                 |
| INDEX  | the first bad index                                                   |
| LIMIT  | its limit: 0 <= index < limit                                         |
| BOUNDS | address of the record of bounds checks (bounds/); 0 if they are off   |
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

FAULT = 3
FOUND, BLOCK, INDEX, LIMIT, BOUNDS, WORDS = 0, 1, 2, 3, 4, 8


def new_record() -> NDArray[np.int64]:
    """Return an empty record, padded to 64 bytes to limit false sharing."""
    return np.zeros(WORDS, np.int64)


@fn
def note(p, index, n):
    """Record a bad index. The counter is atomic, so only the first thread writes the details."""
    record = v.ld_i64(p + 8 * FAULT)
    if v.atomic_add(record + 8 * FOUND, 1) == 0:
        v.st_i64(record + 8 * BLOCK, p)
        v.st_i64(record + 8 * INDEX, index)
        v.st_i64(record + 8 * LIMIT, n)


@fn
def in_range(p, index, n):
    """Return True if the index is in range(n); record a fault if not."""
    if index >= 0 and index < n:
        return True
    note(p, index, n)
    return False


@fn
def index_or_0(p, index, n):
    """Return the index if it is in range(n), n > 0; otherwise record a fault and return 0."""
    return index if in_range(p, index, n) else 0

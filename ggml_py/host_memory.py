"""Zeroed memory of the host, in large pages where the OS has them.

Weights are read from end to end once a token: with pages of 4 KiB every one costs a walk through
the page tables, and the prefetchers of most CPUs stop at its end.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from ggml_py.buffer import Bytes

LARGE = 2 << 20  # bytes of a large page, on most machines


def aligned_bytes(size: int, alignment: int = 64) -> Bytes:
    """Memory whose first byte is aligned; pages come from the OS on first touch.

    Raises MemoryError if there is none.
    """
    if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        return _large_pages(size, max(alignment, LARGE))
    raw = np.zeros(size + alignment, np.uint8)
    start = -_address(raw) % alignment
    return raw[start : start + size]


def _large_pages(size: int, alignment: int) -> Bytes:
    """Asked for, as most systems give them on request only; what is left at the end is not worth
    one.
    """
    try:
        area = mmap.mmap(-1, size + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as e:
        raise MemoryError(f"{size} bytes: {e}") from e
    raw = np.frombuffer(area, np.uint8)
    start = -_address(raw) % alignment
    with suppress(OSError):  # a kernel that was built without them
        area.madvise(mmap.MADV_HUGEPAGE, start, size // LARGE * LARGE)
    return raw[start : start + size]


def _address(raw: Bytes) -> int:
    return int(raw.__array_interface__["data"][0])

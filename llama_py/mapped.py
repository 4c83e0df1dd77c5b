"""Pages of a mapped file that this process does not need for now."""

from __future__ import annotations

import mmap


def let_go(mapped: mmap.mmap, start: int, end: int) -> None:
    """Of the memory that these bytes take in this process, but for what else is in their pages.
    They are there still, and come back from the file when they are read."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = end // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0 and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, first, size)

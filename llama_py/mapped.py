"""Pages of a mapped file that this process does not need for now."""

from __future__ import annotations

import mmap


def let_go(mapped: mmap.mmap, start: int, end: int) -> None:
    """Of the memory that these bytes take in this process, with what else is in their pages. They
    are there still, and come back from the file when they are read."""
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, first, end - first)

"""Release of pages of a mapped file that are not needed for now."""

from __future__ import annotations

import mmap

AROUND = 64 << 10  # bytes that come along with a page that is read (Linux: fault_around_bytes)


def let_go(mapped: mmap.mmap, start: int, end: int) -> None:
    """Give back memory that these bytes take in this process, with what came along. They are there
    still, and come back from the file when they are read."""
    first = max(0, start - AROUND) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, first, min(end + AROUND, len(mapped)) - first)

"""Release of pages of a mapped file that are not needed for now."""

from __future__ import annotations

import mmap

AROUND = 64 << 10  # bytes that are mapped together with a page (Linux: fault_around_bytes)


def release_pages(mapped: mmap.mmap, start: int, end: int) -> None:
    """Release the memory that these bytes use in this process, with adjacent mapped pages.
    The next access reads the file again."""
    first = max(0, start - AROUND) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, first, min(end + AROUND, len(mapped)) - first)

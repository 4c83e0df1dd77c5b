"""Memory of finished requests: settings that make glibc return it to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of mallopt, and their values. By default glibc has a heap for each thread, and moves
# blocks of up to 32 MiB into these heaps after it has freed one. Fragmented heaps then
# keep several times the memory of the largest requests.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_OPTIONS = {_M_TRIM_THRESHOLD: 64 << 20, _M_MMAP_THRESHOLD: 4 << 20, _M_ARENA_MAX: 2}


def return_freed_memory() -> None:
    """Make the C library return large freed blocks at once; call it before threads start.

    Only glibc has these settings; other libraries are unchanged.
    """
    with suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS.items():
            mallopt(option, value)

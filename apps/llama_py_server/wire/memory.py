"""Memory of finished requests: settings that make glibc return it to the system."""

from __future__ import annotations

import asyncio
import ctypes
from contextlib import suppress

# Parameters of mallopt, and their values. By default glibc has a heap for each thread, and moves
# blocks of up to 32 MiB into these heaps after it has freed one. Fragmented heaps then
# keep several times the memory of the largest requests.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_TRIM_AFTER = 1.0  # seconds after the end of a large request
_OPTIONS = {_M_TRIM_THRESHOLD: 64 << 20, _M_MMAP_THRESHOLD: 4 << 20, _M_ARENA_MAX: 2}


def return_freed_memory() -> None:
    """Make the C library return large freed blocks at once; call it before threads start.

    Only glibc has these settings; other libraries are unchanged.
    """
    with suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS.items():
            mallopt(option, value)


class Trimmer:
    """Returns the free memory inside of heaps, soon after large requests."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def trim_soon(self) -> None:
        """Trim in a moment, once for all requests that end until then."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_TRIM_AFTER, self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        loop.run_in_executor(None, _trim)


def _trim() -> None:
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)

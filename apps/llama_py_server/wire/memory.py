"""Memory of finished requests: when it is returned to the system and to Python."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from contextlib import suppress

from llama_py_server.wire.work import ANSWERS

# Parameters of mallopt, and their values. By default glibc has a heap for each thread, and moves
# blocks of up to 32 MiB into these heaps after it has freed one. Fragmented heaps then
# keep several times the memory of the largest requests.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_TRIM_AFTER = 1.0  # seconds after the end of a large request
_OPTIONS = {_M_TRIM_THRESHOLD: 64 << 20, _M_MMAP_THRESHOLD: 4 << 20, _M_ARENA_MAX: 2}

_NEVER = 1 << 30  # collections of young objects before Python starts a full one
_ENOUGH = 10  # the same number as Python's default, for `tick`
_EVERY = 10.0  # minimum seconds between collections
_LONG = 0.03  # CPU seconds of a collection after which the objects that remain are frozen
_IDLE, _SELDOM = 30.0, 600.0  # seconds without responses, and since the last scan of all objects
_BUSY = 1200.0  # seconds since that scan after which the next one no longer waits for a pause


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


class GarbageCollector:
    """Garbage collections at times that delay no response.

    While one runs, no other thread does. Python's own would begin at any time and scan the objects
    of all graphs. Here a collection scans only objects that are not frozen. It freezes them only
    if the scan took long: a graph is freed without a collection, but requests that are being
    processed at that moment may become garbage that only a scan of all objects frees. That scan
    waits for a pause without responses, or for `_BUSY` seconds.
    """

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        gc.set_threshold(*self._before[:2], _NEVER)
        self._last = self._busy = self._whole = time.monotonic()
        self._n = _n_collections()

    def tick(self) -> None:
        """Collect garbage if it is time; to be called a few times per second."""
        now = time.monotonic()
        if ANSWERS:
            self._busy = now
        if _n_collections() - self._n < _ENOUGH or now - self._last < _EVERY:
            return
        since = now - self._whole
        if since > _BUSY or (since > _SELDOM and now - self._busy > _IDLE):
            gc.unfreeze()
            self._whole = now
        start = time.thread_time()
        gc.collect()
        if time.thread_time() - start > _LONG:
            gc.freeze()
        self._last, self._n = now, _n_collections()

    def close(self) -> None:
        """Restore Python's automatic collections."""
        gc.set_threshold(*self._before)


def _n_collections() -> int:
    """Return the number of collections of objects that survived one collection."""
    n: int = gc.get_stats()[1]["collections"]
    return n

"""Locking of weights in memory (llama.cpp's mlock)."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import sys
from collections.abc import Iterable

from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor

log = logging.getLogger("llama_py")


def lock(weights: Iterable[Tensor]) -> int:
    """Lock the bytes of host weights against swapping, until they are freed; refusals are logged.
    Return the number of locked bytes."""
    places = {
        (t.buffer.base + t.offset, t.nbytes)
        for t in weights
        if isinstance(t.buffer, HostBuffer) and t.nbytes
    }
    total, done = sum(size for _, size in places), 0
    for address, size in sorted(places):
        start = address // mmap.PAGESIZE * mmap.PAGESIZE
        why = _lock(start, address + size - start)
        if why:
            log.warning(
                "mlock: only %.1f of %.1f MiB are locked, so the rest may be swapped out: %s; "
                "raise this process's limit (ulimit -l)",
                done / 2**20,
                total / 2**20,
                why,
            )
            return done
        done += size
    return done


def _lock(address: int, size: int) -> str:
    """Lock memory; return the system's error message, or "" on success."""
    where, n = ctypes.c_void_p(address), ctypes.c_size_t(size)
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        return "" if kernel.VirtualLock(where, n) else ctypes.FormatError(ctypes.get_last_error())
    libc = ctypes.CDLL(None, use_errno=True)
    return "" if libc.mlock(where, n) == 0 else os.strerror(ctypes.get_errno())

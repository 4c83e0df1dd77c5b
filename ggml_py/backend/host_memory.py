"""Zeroed host memory, in huge pages if the OS has them.

Every token reads each weight once from start to end. With pages of 4 KiB, each page needs a
page-table walk, and the prefetchers of most CPUs stop at its end.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from weakref import ref

import numpy as np
import numpy.typing as npt

from ggml_py.errors import AllocError
from ggml_py.machine import host
from ggml_py.tensor import Bytes

LARGE = 2 << 20  # bytes of a huge page, on most machines
ALIGNMENT = 64
OFFERED = 256 << 20  # maximum bytes of a buffer that stay resident while Linux has free memory
AREA = 32 << 20  # bytes of huge pages that several tensors share
SHORT = AREA // 4  # maximum bytes of a tensor that shares an area


def aligned_bytes(size: int, alignment: int = ALIGNMENT) -> Bytes:
    """Return aligned memory; its pages are allocated on first touch.

    Raises AllocError if the memory is not available.
    """
    try:
        if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            return _large_pages(size, max(alignment, LARGE))
        raw = np.zeros(size + alignment, np.uint8)
    except (MemoryError, OSError) as e:
        raise AllocError(
            f"cannot allocate {size / 2**20:.1f} MiB of memory: "
            f"{host.memory()[0] / 2**20:.0f} MiB are available; use a smaller n_ctx, n_seq_max "
            "or n_ubatch, or a smaller model, or raise this process's limit"
        ) from e
    start = -_address(raw) % alignment
    return raw[start : start + size]


class SharedPages:
    """Memory that packs many tensors side by side, so that tensors smaller than a huge page use
    huge pages. An area is released after its last tensor."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: ref[Bytes] | None = None  # area with free bytes
        self._next = self._end = 0  # offsets in the area
        self._expected = 0

    def expect(self, sizes: Iterable[int]) -> None:
        """Announce sizes of later requests: the next area has enough bytes for all sizes."""
        with self._lock:
            self._expected = sum(need for size in sizes if (need := _align_size(size)) <= SHORT)

    def take(self, size: int) -> Bytes:
        """Return memory like `aligned_bytes`; only short pieces share pages."""
        need = _align_size(size)
        if need > SHORT:
            return aligned_bytes(size)
        with self._lock:
            owner = self._owner() if self._owner is not None else None
            if owner is None or self._next + need > self._end:
                owner = self._new_area(self._expected if self._expected >= need else AREA)
                self._expected = 0
            at = self._next
            self._next += need
            return owner[at : at + size]

    def _new_area(self, size: int) -> Bytes:
        area = aligned_bytes(size)
        owner = area.base if isinstance(area.base, np.ndarray) else area
        self._owner, self._next = ref(owner), _address(area) - _address(owner)
        self._end = self._next + size
        return owner


def _align_size(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _large_pages(size: int, alignment: int) -> Bytes:
    """Return memory in huge pages, which most systems give on request only; a rest at the end is
    not worth one."""
    area = _Area(-1, size + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw = np.frombuffer(area, np.uint8)
    start = -_address(raw) % alignment
    with suppress(OSError):  # the kernel has no huge pages
        area.madvise(mmap.MADV_HUGEPAGE, start, size // LARGE * LARGE)
    return raw[start : start + size]


def zero(data: Bytes) -> None:
    """Set all bytes to 0. Linux releases the pages of `aligned_bytes` and returns zeros on the
    next touch, so a cache of gigabytes without data uses no memory."""
    given = give_back(data)
    data[: given.start] = 0
    data[given.stop :] = 0


def give_back(data: Bytes) -> slice:
    """Release the pages of unused bytes: Linux takes them back, and gives zeros on the next touch.
    Returns the released part; other bytes are unchanged."""
    return _advise(data, "MADV_DONTNEED")


def offer(data: Bytes) -> None:
    """Set all bytes to 0, and let Linux take the pages back when it needs memory. Until then they
    cost no page fault at the next use. Pages without data are not touched."""
    inner, size = _pages(data), mmap.PAGESIZE
    used = _resident(data[inner])
    if used.sum() * size > OFFERED:
        return zero(data)
    data[: inner.start] = data[inner.stop :] = 0
    edges = np.flatnonzero(np.diff(used, prepend=False, append=False)) * size + inner.start
    for start, end in edges.reshape(-1, 2).tolist():
        data[start:end] = 0
    _advise(data, "MADV_FREE")


def _resident(data: Bytes) -> npt.NDArray[np.bool_]:
    """Return for each page of page-aligned bytes if it has memory (Linux)."""
    pages = np.zeros(data.size // mmap.PAGESIZE, np.uint8)
    start, size = ctypes.c_void_p(_address(data)), ctypes.c_size_t(data.size)
    if ctypes.CDLL(None).mincore(start, size, ctypes.c_void_p(_address(pages))):
        pages[:] = 1  # unknown
    return (pages & 1).astype(np.bool_)


def _advise(data: Bytes, advice: str) -> slice:
    """Give Linux advice on the whole pages of `_large_pages`; return this part of the bytes."""
    inner, area = _pages(data), _area(data)
    if inner.start < inner.stop and area is not None:
        before = _address(data) - _address(np.frombuffer(area, np.uint8))
        area.madvise(getattr(mmap, advice), before + inner.start, inner.stop - inner.start)
    return inner


def _pages(data: Bytes) -> slice:
    """Return the part of an array that is whole pages of `_large_pages`."""
    first = -_address(data) % mmap.PAGESIZE
    end = data.size - (_address(data) + data.size) % mmap.PAGESIZE
    if end <= first or _area(data) is None or host.SYSTEM != "linux":
        return slice(0, 0)
    return slice(first, end)


def _area(data: Bytes) -> mmap.mmap | None:
    """Return the anonymous memory of an array, if it is of `_large_pages`."""
    base: object = data
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, _Area) else None


class _Area(mmap.mmap):
    """Anonymous memory map, without a file."""


def _address(raw: Bytes) -> int:
    return int(raw.__array_interface__["data"][0])


@dataclass(slots=True)
class HostBuffer:
    """Plain host memory as a Buffer; `base` is the address of its first byte."""

    data: Bytes
    is_host: bool = True
    size: int = field(init=False)
    base: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.data.size
        self.base = int(self.data.__array_interface__["data"][0])

    def write(self, offset: int, data: Bytes) -> None:
        self.data[offset : offset + data.size] = data

    def read(self, offset: int, size: int) -> Bytes:
        return self.data[offset : offset + size].copy()

    def view(self, offset: int, size: int) -> Bytes:
        """Return the bytes themselves, not a copy."""
        return self.data[offset : offset + size]

    def clear(self, value: int = 0) -> None:
        if value:
            self.data[:] = value
        else:
            zero(self.data)

    def offer(self) -> None:
        """Zero the bytes, and let the OS take the pages; see `offer`."""
        offer(self.data)

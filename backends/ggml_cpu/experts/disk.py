"""Reads parts of a file without keeping them in the system's page cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Lock
from time import perf_counter

from ggml_py.backend import Bytes, FileWeight, aligned_bytes
from ggml_py.errors import BackendError

READS = 8  # reads at a time
MEASURE_SECONDS = 0.5
PAGE = 4096  # alignment of direct reads: a multiple of every disk's block


def staging_bytes(nbytes: int) -> int:
    """Return the bytes of memory that `DirectFile.read` needs for a part of `nbytes`."""
    return (nbytes + 2 * PAGE - 1) // PAGE * PAGE


def measure_reads(weights: Sequence[FileWeight]) -> float:
    """Return the bytes/s of reads of random experts' matrices, several at a time."""
    files = {w.path: DirectFile(w.path) for w in weights}
    chosen, ends = Random(0), perf_counter() + MEASURE_SECONDS

    def read(_: int) -> int:
        total = 0
        while not total or perf_counter() < ends:
            w = chosen.choice(weights)
            nbytes = w.tensor.nbytes // w.tensor.ne[2]
            place = w.offset + nbytes * chosen.randrange(w.tensor.ne[2])
            memory = aligned_bytes(staging_bytes(nbytes), PAGE)
            total += files[w.path].read(place, nbytes, memory).size
        return total

    start = perf_counter()
    with ThreadPoolExecutor(READS) as threads:
        return sum(threads.map(read, range(READS))) / (perf_counter() - start)


class DirectFile:
    """An open file. Reads bypass the page cache (O_DIRECT) if the file system supports that;
    otherwise the system drops the pages after each read."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError if that fails."""
        self.path = path
        self._direct, self._fds = getattr(os, "O_DIRECT", 0), list[int]()
        self._changes = Lock()
        try:
            self._open()
        except OSError as e:
            self._read_indirectly(e)

    @property
    def is_direct(self) -> bool:
        return bool(self._direct)

    def _open(self) -> None:
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | self._direct
        self._fds.append(os.open(self.path, flags))

    def _read_indirectly(self, e: OSError) -> None:
        """Open the file again, with the page cache, after an error of direct reads. Other
        threads read with the first descriptor, so it stays open."""
        if e.errno != errno.EINVAL or not self._direct:
            raise e
        self._direct = 0
        self._open()

    def read(self, offset: int, nbytes: int, memory: Bytes) -> Bytes:
        """Return the bytes from `offset` on, inside `memory`, which is aligned to a page and has
        `staging_bytes(nbytes)`.

        Raises BackendError if reading fails, or if the file has become shorter.
        """
        start = offset // PAGE * PAGE
        end, done = offset + nbytes, 0
        length = -(-end // PAGE) * PAGE - start
        target = memoryview(memory.data)[:length]
        try:
            while start + done < end:
                got = self._read(start + done, target[done:])
                if not got:
                    raise OSError(0, f"the file has only {start + done} bytes")
                done += got
        except OSError as e:
            raise BackendError(
                f"{self.path}: bytes {offset}-{end - 1} of the weights: "
                f"{e.strerror or e}; check the disk and the file, then try again"
            ) from e
        return memory[offset - start : end - start]

    def _read(self, offset: int, target: memoryview) -> int:
        fd = self._fds[-1]
        try:
            got = os.preadv(fd, [target], offset)
        except OSError as e:
            with self._changes:
                if fd == self._fds[-1]:  # else another thread has opened the file again
                    self._read_indirectly(e)
            fd = self._fds[-1]
            got = os.preadv(fd, [target], offset)
        if not self.is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, offset, got, os.POSIX_FADV_DONTNEED)
        return got

    def close(self) -> None:
        """Close every descriptor of the file."""
        while self._fds:
            os.close(self._fds.pop())

    def __del__(self) -> None:
        self.close()

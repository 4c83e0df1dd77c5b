"""Reads parts of a file without keeping them in the system's page cache."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from ggml_py.backend import Bytes, aligned_bytes
from ggml_py.errors import BackendError

PAGE = 4096  # alignment of direct reads: a multiple of every disk's block


def staging_bytes(nbytes: int) -> int:
    """Return the bytes of memory that `DirectFile.read` needs for a part of `nbytes`."""
    return (nbytes + 2 * PAGE - 1) // PAGE * PAGE


def staging_memory(nbytes: int) -> Bytes:
    """Return memory for parts of at most `nbytes`."""
    return aligned_bytes(staging_bytes(nbytes), PAGE)


class DirectFile:
    """An open file. Reads bypass the page cache (O_DIRECT) if the file system supports that;
    otherwise the system drops the pages after each read."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError if that fails."""
        self.path = path
        self._flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
        self.is_direct = hasattr(os, "O_DIRECT")
        self._fd = -1
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, self._flags | (os.O_DIRECT if self.is_direct else 0))
        except OSError as e:
            if not self.is_direct or e.errno != errno.EINVAL:
                raise
            self.is_direct = False
            self._open()

    def read(self, offset: int, nbytes: int, memory: Bytes) -> Bytes:
        """Return the bytes from `offset` on, inside `memory` (see `staging_memory`).

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
        try:
            got = os.preadv(self._fd, [target], offset)
        except OSError as e:
            if not self.is_direct or e.errno != errno.EINVAL:
                raise
            self.is_direct = False
            self.close()
            self._open()
            got = os.preadv(self._fd, [target], offset)
        if not self.is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, got, os.POSIX_FADV_DONTNEED)
        return got

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

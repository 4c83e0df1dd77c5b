"""Turns among processes: one that is about to compile waits for what another is compiling."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from ggml_py.machine.folder import Folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "lock"  # the file
PATIENCE = 30.0  # seconds without a new kernel after which one is not waited for any longer


class CompileTurn:
    """One process's wish to compile into a folder; None: without others. Use it in `with`.

    The system takes the lock from a process that ends, however it ends. It only saves work: files
    are whole with or without it.
    """

    def __init__(self, folder: Folder | None) -> None:
        self._fd: int | None = None
        self._since = time.monotonic()
        if folder is not None:
            with suppress(OSError):  # where nothing can be written, nobody waits for us either
                self._fd = folder.open(LOCK, os.O_RDWR | os.O_CREAT)

    def __enter__(self) -> CompileTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):  # of a forked process too, which has it open
                _unlock(fd)
            os.close(fd)

    def has_come(self) -> bool:
        """Return True if it is time to compile: the lock is ours, or waiting took too long."""
        return self.is_ours() or time.monotonic() - self._since > PATIENCE

    def is_ours(self) -> bool:
        """Return True if this process has the lock, which it takes if it is free."""
        if self._fd is None:
            return True
        try:
            _lock(self._fd)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def progress(self) -> None:
        """Note that the awaited kernels are coming."""
        self._since = time.monotonic()


if sys.platform == "win32":

    def _lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

"""Lock between processes: a process waits while another one compiles into the same directory."""

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

LOCK = "lock"  # file name
PATIENCE = 30.0  # seconds without a new kernel, after which the process stops waiting


class CompileTurn:
    """A process's turn to compile into a folder, as a context manager; None: no lock is needed.

    The system releases the lock when the process ends, even if it is killed. The lock only avoids
    duplicate work: cache files are written atomically with or without it.
    """

    def __init__(self, folder: Folder | None) -> None:
        self._fd: int | None = None
        self._since = time.monotonic()
        if folder is not None:
            with suppress(OSError):  # a read-only folder needs no lock
                self._fd = folder.open(LOCK, os.O_RDWR | os.O_CREAT)

    def __enter__(self) -> CompileTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):  # a forked process may share the file
                _unlock(fd)
            os.close(fd)

    def has_come(self) -> bool:
        """Return True if this process should compile: it has the lock or has waited too long."""
        return self.is_ours() or time.monotonic() - self._since > PATIENCE

    def is_ours(self) -> bool:
        """Return True if this process has the lock; it takes the lock if free."""
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
        """Restart the wait: the other process has finished a kernel."""
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

"""Private directory that only its user can write to, as files loaded from it are executed.

On systems that support it, files are opened relative to the open directory, so that the directory
cannot be replaced in between. Symbolic links, pipes and devices are rejected without blocking.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ggml_py.machine.environment import number

ROOT = 0
PARTIAL = ".part"  # ends the name of a file that is being written
_GUARDS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
_FLAGS = sum(getattr(os, name, 0) for name in _GUARDS)


def size_limit(variable: str, default: int) -> float:
    """Return the byte limit of a directory: an environment variable in MiB; negative: no limit."""
    mib = number(variable, default, "MiB")
    return mib * 2.0**20 if mib >= 0 else float("inf")


def cache_root() -> Path | None:
    """Return the cache directory (LLAMA_PY_CACHE); None without a home."""
    if not (chosen := os.environ.get("LLAMA_PY_CACHE")):
        import platformdirs

        chosen = platformdirs.user_cache_dir("llama-py")
    expanded = os.path.expanduser(chosen)  # noqa: PTH111  that of Path raises without a home
    return None if expanded.startswith("~") else Path(expanded)


class Folder:
    """An open directory. Use it in `with`, or close it.

    name   of the directory
    """

    def __init__(self, path: Path) -> None:
        """Open the directory; OSError if it does not exist or others can change it."""
        self._path = path
        self.name = path.name
        self._fd: int | None = None
        if os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY"):
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        try:
            reason = self._why_not()
        except OSError:
            self.close()
            raise
        if reason:
            self.close()
            raise PermissionError(errno.EPERM, reason)

    def _why_not(self) -> str:
        """Return the reason why the directory cannot be trusted; "" if it can."""
        found = self._path.lstat() if self._fd is None else os.fstat(self._fd)
        if not stat.S_ISDIR(found.st_mode):  # links are rejected
            return "is not a directory"
        return why_not_ours(found)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def touch(self) -> None:
        """Mark the directory as used now, if it is writable."""
        with suppress(OSError):
            os.utime(self._path if self._fd is None else self._fd)

    def modification_time(self, name: str) -> float:
        """Return the modification time of a file, or 0 if it does not exist."""
        try:
            return os.lstat(self._resolve(name), dir_fd=self._fd).st_mtime
        except OSError:
            return 0.0

    @property
    def last_change(self) -> float:
        """Time of the last change of the directory, in seconds since 1970."""
        return (self._path.stat() if self._fd is None else os.fstat(self._fd)).st_mtime

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file of this user, created if the flags specify that.
        Never blocks."""
        fd = os.open(self._resolve(name), flags | _FLAGS, 0o644, dir_fd=self._fd)
        found = os.fstat(fd)
        reason = why_not_ours(found) if stat.S_ISREG(found.st_mode) else "is not a file"
        if reason:
            os.close(fd)
            raise PermissionError(errno.EPERM, reason)
        return fd

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None without a trusted file of that name."""
        try:
            fd = self.open(name, os.O_RDONLY)
        except OSError:
            return None
        try:
            size = os.fstat(fd).st_size
            return _read(fd, size)
        except OSError:
            return None
        finally:
            os.close(fd)

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Store a file atomically: readers get the new content, the old content, or no file."""
        partial = f"{name}.{os.urandom(6).hex()}{PARTIAL}"
        fd = self.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                _write(fd, content)
            finally:
                os.close(fd)
            of = self._fd
            try:
                os.replace(
                    self._resolve(partial), self._resolve(name), src_dir_fd=of, dst_dir_fd=of
                )
            except PermissionError:  # Windows: the file is open elsewhere
                if self.read(name) != content:
                    raise
                self.remove(partial)
        except BaseException:
            with suppress(OSError):
                self.remove(partial)
            raise

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield names and status of regular files; links are skipped."""
        with os.scandir(self._path if self._fd is None else self._fd) as found:
            for entry in found:
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        yield entry.name, about

    def remove(self, name: str) -> None:
        os.unlink(self._resolve(name), dir_fd=self._fd)

    def _resolve(self, name: str) -> str:
        return name if self._fd is not None else str(self._path / name)


def why_not_ours(found: os.stat_result) -> str:
    """Return the reason why a file may belong to others; "" if it is ours. Windows keeps a profile
    private."""
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (os.geteuid(), ROOT):
        return f"belongs to another user ({found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable by other users (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _read(fd: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(fd: int, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]

"""Parts of model files that rank 0 has sent to this machine: `<cache>/weights/<SHA-256>`.

A file is named by its content's hash, which is checked before use, so that a truncated or changed
file does not count. Parts that cannot be stored remain in memory only; the next start resends them.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ggml_py.backend import Bytes
from ggml_py.machine.folder import PARTIAL, Folder, cache_root, size_limit

log = logging.getLogger("llama_py")

LEAST = 2**16  # minimum bytes of a file
SIZE = 65536  # MiB, unless LLAMA_PY_WEIGHTS_SIZE is set
MARKER = "CACHEDIR.TAG"  # marks a directory of ours; backups skip such directories
MARK = "Signature: 8a477f597d28d172789f06886806bc55\n# llama-py weights\n"
_STRAY = 3600.0  # seconds until an unfinished file counts as abandoned
_OURS = re.compile(rf"[0-9a-f]{{64}}(\.[0-9a-f]{{12}}{re.escape(PARTIAL)})?")


@dataclass(frozen=True, slots=True)
class FolderAbout:
    """The directory: how many parts, their bytes, and when one was used last."""

    path: Path
    n: int
    size: int
    used: float


class KeptWeights:
    """Parts of files that one rank finds and keeps; the limit does not remove parts in use."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._told = False

    def find(self, digest: str, size: int) -> Bytes | None:
        """Return the bytes, mapped, or None if no valid file has them."""
        try:
            with _folder() as folder:
                found = _map_file(folder, digest, size)
        except (OSError, ValueError):
            return None
        if found is not None:
            self._used.add(digest)
        return found

    def keep(self, digest: str, data: Bytes) -> Bytes:
        """Store the bytes and return them, mapped if that succeeds; evict the least recently used
        parts if needed."""
        try:
            with _create_folder() as folder:
                if not self._make_room(folder, data.size):
                    return data
                self._used.add(digest)
                folder.write(digest, data.data)
                found = _map_file(folder, digest, data.size, check=False)
        except OSError as error:
            self._tell(error)
            return data
        return data if found is None else found

    def _make_room(self, folder: Folder, size: int) -> bool:
        limit = size_limit("LLAMA_PY_WEIGHTS_SIZE", SIZE)
        files = {n: s for n, s in folder.files() if _OURS.fullmatch(n)}
        total = sum(s.st_size for s in files.values()) + size
        newest = max((s.st_mtime for s in files.values()), default=0.0)
        for name, about in sorted(files.items(), key=lambda item: item[1].st_mtime):
            stray = name.endswith(PARTIAL) and newest - about.st_mtime > _STRAY
            mine = name in self._used or name.endswith(PARTIAL)
            if stray or (total > limit and not mine):
                with suppress(OSError):  # another rank may do the same
                    folder.remove(name)
                    total -= about.st_size
        return total <= limit

    def _tell(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "weights from rank 0 cannot be cached%s: %s; they are sent again at each start",
                f" in {path()}" if path() else "",
                error.strerror or error,
            )


def path() -> Path | None:
    """Return the directory, which need not exist; None without a home directory."""
    root = cache_root()
    return None if root is None else root / "weights"


def about() -> FolderAbout | None:
    """Return the directory's number of parts and bytes; None if it does not exist."""
    try:
        with _folder() as folder:
            found = [s for name, s in folder.files() if _OURS.fullmatch(name)]
            used = max((s.st_mtime for s in found), default=folder.last_change)
    except OSError:
        return None
    at = path()
    assert at is not None
    return FolderAbout(at, len(found), sum(s.st_size for s in found), used)


def clear() -> tuple[int, int]:
    """Remove all kept files and return their number and bytes. Other files remain, and a process
    can still read a removed file that it uses."""
    n = size = 0
    with suppress(OSError), _folder() as folder:
        for name, about in list(folder.files()):
            if _OURS.fullmatch(name):
                with suppress(OSError):  # Windows: the file is in use
                    folder.remove(name)
                    n, size = n + 1, size + about.st_size
    return n, size


def _folder() -> Folder:
    """Return the directory; OSError unless it exists, is trusted and is marked as ours."""
    at = path()
    if at is None:
        raise OSError(0, "no home directory")
    folder = Folder(at)
    if (folder.read(MARKER) or b"") != MARK.encode():
        folder.close()
        raise OSError(0, f"file {MARKER} is missing or invalid")
    return folder


def _create_folder() -> Folder:
    """Return the directory, made if need be."""
    at = path()
    if at is not None:
        at.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            at.mkdir(mode=0o700)
        with Folder(at) as folder:
            if all(name.startswith(MARKER) for name, _ in folder.files()):
                folder.write(MARKER, MARK.encode())
    return _folder()


def _map_file(folder: Folder, digest: str, size: int, check: bool = True) -> Bytes | None:
    """Return a file's bytes if they have this digest and size, else remove it and return None."""
    fd = folder.open(digest, os.O_RDONLY)
    try:
        if os.fstat(fd).st_size == size:
            data = np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), np.uint8)
            if not check or full_digest(data) == digest:
                if os.utime in os.supports_fd:
                    os.utime(fd)
                return data
    finally:
        os.close(fd)
    with suppress(OSError):
        folder.remove(digest)
    return None


def full_digest(data: Bytes) -> str:
    """Return the SHA-256 of the bytes, which is their file name."""
    return hashlib.sha256(data.data).hexdigest()

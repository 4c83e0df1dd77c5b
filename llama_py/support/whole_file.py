"""Atomic replacement of files: after a crash either the old or the new one exists."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PART = ".part"
ABANDONED = 600  # seconds since it was last written to


def replace_file(path: str | Path, parts: Iterable[bytes | memoryview]) -> int:
    """Write the parts in sequence to a file atomically; return their total size.

    They are written to another file in the folder, which is renamed once all bytes are on the
    disk. After an OSError, the old file is unchanged. If several processes write the same file,
    the last one wins.
    """
    path = Path(path).resolve()  # resolve links
    _sweep(path)
    part = path.with_name(f"{path.name}.{os.urandom(8).hex()}{PART}")
    try:
        with part.open("xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return size


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name lasts. Not every system can; the file is complete
    anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(path: Path) -> None:
    """Remove leftovers of killed writers."""
    for part in path.parent.glob(f"{_escape_glob(path.name)}.*{PART}"):
        with suppress(OSError):  # another process was faster, or it is not ours
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()


def _escape_glob(name: str) -> str:
    """Return a glob pattern that matches only this name."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)

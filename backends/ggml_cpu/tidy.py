"""Clean-up of the cache by environment: it removes our files in marked directories."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggml_cpu.fingerprints import environment
from ggml_cpu.lock import LOCK, CompileTurn
from ggml_cpu.store import MARK, MARKER, OBJECT, SET, cache_path, is_marked, mark, path
from ggml_py.machine.folder import PARTIAL, Folder, size_limit

log = logging.getLogger("llama_py")

UNUSED_DAYS = 30
SIZE = 1024  # MiB, where LLAMA_PY_CACHE_SIZE does not say it
_DAY = 86400.0
_STRAY = 3600.0  # seconds after which a file that was not finished never will be


@dataclass(frozen=True)
class Environment:
    """Kernels compiled for the same versions and CPU.

    made_for  these, in words
    size      bytes of its files
    used      when it was used last, in seconds since 1970
    present   whether it is what this process uses
    """

    path: Path
    made_for: str
    n_kernels: int
    size: int
    used: float

    @property
    def present(self) -> bool:
        return self.path == path()


def environments() -> list[Environment]:
    """Return environments in the cache, last used first; it reads nothing else there."""
    found = []
    for at in _directories():
        with suppress(OSError), Folder(at) as folder:
            if is_marked(folder):
                sizes = {name: about.st_size for name, about in folder.files() if _is_ours(name)}
                n = sum(name.endswith(OBJECT) for name in sizes)
                mark = (folder.read(MARKER) or b"").decode(errors="replace")
                made_for = mark.removeprefix(MARK).strip()
                found.append(Environment(at, made_for, n, sum(sizes.values()), folder.last_change))
    return sorted(found, key=lambda e: e.used, reverse=True)


def _directories() -> list[Path]:
    root = cache_path()
    try:
        return [] if root is None else sorted(root.iterdir())
    except OSError:
        return []


def _is_ours(name: str) -> bool:
    return name.endswith((OBJECT, SET, PARTIAL)) or name in (LOCK, MARKER)


def remove(unwanted: Iterable[Environment]) -> list[Environment]:
    """Remove environments, but for files that are not ours, and return the removed ones. Files that
    a process compiles at this moment stay."""
    return [e for e in unwanted if _remove(e.path)]


def _remove(at: Path) -> bool:
    try:
        with Folder(at) as folder, CompileTurn(folder) as turn:
            if not is_marked(folder) or not turn.is_ours():
                return False
            names = [name for name, _ in folder.files()]
            for name in filter(_is_ours, names):
                if name not in (LOCK, MARKER):
                    folder.remove(name)
            if all(map(_is_ours, names)):
                folder.remove(LOCK)
                folder.remove(MARKER)  # last, so that a later run can remove the rest
        at.rmdir()
    except OSError:  # something of somebody else is there, or another process did the same
        return not at.exists()
    return True


def tidy(folder: Folder, made: bool) -> None:
    """Remove, after compiling into a new directory, or else once a day, unfinished files,
    environments unused for UNUSED_DAYS, and of the others, longest unused first, so many that the
    cache keeps its size. The present one stays."""
    now = time.time()
    if not made and now - folder.modification_time(MARKER) < _DAY:
        return
    mark(folder)
    for name, about in list(folder.files()):
        if name.endswith(PARTIAL) and now - about.st_mtime > _STRAY:
            with suppress(OSError):
                folder.remove(name)
    known, limit = environments(), size_limit("LLAMA_PY_CACHE_SIZE", SIZE)
    total = sum(e.size for e in known)
    for e in reversed(known):
        old = now - e.used > UNUSED_DAYS * _DAY
        if e.path.name != environment() and (old or total > limit) and _remove(e.path):
            total -= e.size

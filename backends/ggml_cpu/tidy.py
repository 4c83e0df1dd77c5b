"""Lists and removes environments in the kernel cache: our files in marked directories only."""

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
SIZE = 1024  # MiB, default of LLAMA_PY_CACHE_SIZE
_DAY = 86400.0
_STRAY = 3600.0  # seconds after which an unfinished file is abandoned


@dataclass(frozen=True)
class Environment:
    """A cache directory of kernels compiled for the same versions and CPU.

    made_for  description of versions and CPU
    size      bytes of its files
    used      time of the last use, in seconds since 1970
    present   True if this process uses the environment
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
    """Return the environments in the cache, most recently used first; ignore other directories."""
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
    """Remove our files in the environments and return the removed environments.

    An environment is skipped while a process is compiling into it.
    """
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
    except OSError:  # foreign files remain, or another process has removed it
        return not at.exists()
    return True


def tidy(folder: Folder, made: bool) -> None:
    """Clean up the cache, after compiling into a new directory and otherwise once per day.

    Removes abandoned unfinished files and environments unused for UNUSED_DAYS. Then removes the
    least recently used environments until the cache fits its limit. The current one is not removed.
    """
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

"""Entries of the model pool: loader, size and users of a model."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

PART = re.compile(r"-\d{5}(-of-\d{5}\.gguf)$")
State = Literal["unloaded", "loading", "loaded", "unloading"]


class ServableModel(Protocol):
    """Interface of a loaded model: an `Engine`, or an object that has one."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        ...

    @property
    def error(self) -> BaseException | None:
        """Exception that stopped it; it is then loaded again for the next request."""
        ...

    def close(self) -> None: ...


T = TypeVar("T", bound=ServableModel)


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Loader of a model, and its approximate size in bytes."""

    load: Callable[[], T]
    size: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """State of a model: its bytes (approximate before it is loaded) and its number of users.

    asleep  it was unloaded because it was idle
    error   error of the last attempt to load it, or the error that stopped it
    since   start of its idle time, in seconds of `time.monotonic`
    """

    name: str
    state: State
    size: int
    n_uses: int
    asleep: bool = False
    error: BaseException | None = None
    since: float = 0.0


class Entry(Generic[T]):
    """State of a model in `Models`.

    leaving  it accepts no new work, and is unloaded when idle
    used, since  clock value of its last use; start of its idle time, in seconds
    """

    def __init__(self, name: str, source: Source[T]) -> None:
        self.name, self.source, self.size = name, source, source.size
        self.state: State = "unloaded"
        self.served: T | None = None
        self.n_uses = self.used = 0
        self.since = 0.0
        self.leaving = self.asleep = False
        self.error: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        return self.state == "loaded" and not self.n_uses


class Lease(Generic[T]):
    """A model in use: `served` is loaded until the number of `end` calls exceeds `keep` calls."""

    def __init__(self, served: T, ended: Callable[[], None]) -> None:
        self.served, self._ended = served, ended
        self._n, self._lock = 1, threading.Lock()

    def keep(self) -> None:
        """Add a user of the lease."""
        with self._lock:
            self._n += 1

    def end(self) -> None:
        with self._lock:
            self._n -= 1
            last = self._n == 0
        if last:
            self._ended()


def model_size(path: str | Path) -> int:
    """Return the approximate bytes of a model: the size of its file, of all shards, or of the
    weights in a checkpoint's folder."""
    path = Path(path)
    if path.is_dir():
        return sum(p.stat().st_size for p in path.glob("*.safetensors"))
    split = PART.search(path.name)
    others = path.parent.glob(f"*{split[1]}") if split else [path]
    stem = path.name[: split.start()] if split else ""
    return sum(p.stat().st_size for p in others if p.name.startswith(stem))

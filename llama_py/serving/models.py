"""Pool of models under one memory budget: loaded on request; the least recently used idle model is
unloaded to free memory.

    models = Models({"small": Source(lambda: Engine(load(a), owns_model=True), size_of(a)), ...},
                    budget=16 * 2**30)
    with models.use("small") as engine:
        ...

Requests are served in order. A request for a loaded model continues at once, even while others wait
for memory. After PATIENCE seconds of waiting, the models that must be unloaded accept no new work,
so that no request waits forever. A model that failed is unloaded, and loaded again on request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import MappingProxyType
from typing import Generic

from ggml_py._moved import Former
from ggml_py.errors import AllocError, ModelError
from llama_py.serving.request import Busy, EngineClosed
from llama_py.serving.source import Entry, Lease, ModelInfo, Source, T
from llama_py.support.resource import Resource

log = logging.getLogger("llama_py")

PATIENCE = 10.0
LOST = 60.0  # seconds after which the pool gives up a lease


@dataclass(frozen=True, slots=True)
class _Request(Generic[T]):
    entry: Entry[T]
    future: Future[Lease[T]]
    since: float


class Models(Resource, Generic[T]):
    """Pool of models by name."""

    def __init__(
        self,
        sources: Mapping[str, Source[T]] = MappingProxyType({}),
        budget: int | None = None,
        most: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        """Create the pool; budget: bytes of all loaded models together; None for any number.
        most: maximum number of loaded models; 0 for any number."""
        self.budget, self.most, self.patience = budget, most, patience
        self._entries = {name: Entry(name, source) for name, source in sources.items()}
        self._all = [*self._entries.values()]  # including removed models that are still loaded
        self._asked: list[_Request[T]] = []
        self._news: list[tuple[Future[Lease[T]], Lease[T] | None, Exception | None]] = []
        self._changed = threading.Condition()
        self._clock, self._closed = 0, False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def info(self) -> tuple[ModelInfo, ...]:
        """Return the state of all models."""
        with self._changed:
            return tuple(
                ModelInfo(e.name, e.state, e.size, e.n_uses, e.asleep, e.error, e.since)
                for e in self._entries.values()
            )

    def add(self, name: str, source: Source[T]) -> None:
        """Add a model; ModelError if the name exists."""
        with self._changed:
            if name in self._entries:
                raise ModelError(f"model {name!r} already exists; use another name")
            self._entries[name] = Entry(name, source)
            self._all.append(self._entries[name])

    def remove(self, name: str) -> None:
        """Remove a model from the pool; current users may finish."""
        with self._lock_pool():
            entry = self._entry(name)
            entry.leaving = True
            del self._entries[name]
            error = ModelError(f"model {name!r} was removed while the request waited for it")
            for one in [one for one in self._asked if one.entry is entry]:
                self._fail(one, error)
            self._settle()

    def acquire(self, name: str) -> Future[Lease[T]]:
        """Return a future of a model, which is loaded if needed; `forget` cancels it.

        Raises ModelError if the name is unknown, AllocError if the model is larger than the budget,
        and Closed. The future raises Closed, and the errors of loading.
        """
        with self._lock_pool():
            entry = self._entry(name)
            if self._closed:
                raise EngineClosed("the model pool is closed")
            if self.budget is not None and entry.source.size > self.budget:
                raise AllocError(
                    f"model {name} needs {entry.source.size} bytes, more than the budget of "
                    f"{self.budget} bytes for all models; use a larger budget"
                )
            asked = _Request(entry, Future[Lease[T]](), monotonic())
            self._asked.append(asked)
            self._settle()
        return asked.future

    def forget(self, future: Future[Lease[T]]) -> None:
        """Cancel a future of `acquire`, or release its lease."""
        if future.cancel():
            with self._lock_pool():
                self._settle()
        else:
            future.add_done_callback(_give_back)

    @contextmanager
    def use(self, name: str, timeout: float | None = None) -> Generator[T, None, None]:
        """Acquire a model until the end of `with`; it is loaded if needed.

        timeout  seconds to wait for the release of a model in use, if memory is full

        Raises the errors of `acquire` and its future, and Busy after the timeout.
        """
        future = self.acquire(name)
        try:
            lease = future.result(timeout)
        except Late:
            self.forget(future)
            raise Busy(
                f"model {name} cannot be loaded while other models are in use; try again later, "
                "or use a larger budget"
            ) from None
        except BaseException:
            self.forget(future)
            raise
        try:
            yield lease.served
        finally:
            lease.end()

    def peek(self, name: str) -> Lease[T] | None:
        """Return a loaded model for inspection, which does not count as use; None if not loaded."""
        with self._changed:
            entry = self._entry(name)
            if entry.state != "loaded" or entry.served is None:
                return None
            entry.n_uses += 1
            return Lease(entry.served, lambda: self._release(entry, entry.since))

    def unload(self, name: str) -> bool:
        """Unload a model now. False if it was not loaded; Busy if it is in use."""
        with self._changed:
            entry = self._entry(name)
            if entry.n_uses or entry.state in ("loading", "unloading"):
                raise Busy(f"model {name} is in use; try again later")
            if entry.state == "unloaded":
                return False
            entry.state = "unloading"
        self._unload(entry)
        return True

    def unload_when_idle(self, name: str) -> bool:
        """Unload a model when it is idle, and end its sleep state; later requests load it
        again. False if it was not loaded."""
        with self._lock_pool():
            entry = self._entry(name)
            was_asleep, entry.asleep = entry.asleep, False
            if entry.state == "unloaded":
                return was_asleep
            entry.leaving = True
            self._settle()
        return True

    def tick(self, idle: float = 0.0, own: Mapping[str, float] = MappingProxyType({})) -> None:
        """Unload models that were idle for `idle` seconds (0: never), and check patience. Call it
        regularly. own: seconds for models by name, instead of `idle`"""
        with self._lock_pool():
            for e in self._all:
                if e.is_idle and 0 < own.get(e.name, idle) <= monotonic() - e.since:
                    e.leaving = e.asleep = True
            self._settle()

    def close(self, timeout: float = LOST) -> None:
        """Unload all models once they are idle; waiting requests get Closed. Models still in use
        after `timeout` seconds are unloaded as well: their leases were lost."""
        with self._lock_pool():
            self._closed = True
            for one in self._asked[:]:
                self._fail(one, EngineClosed("the model pool is closed"))
            for entry in self._all:
                entry.leaving = True
            self._settle()
        with self._changed:
            self._changed.wait_for(lambda: not self._resident(), timeout)
            lost = [e for e in self._resident() if e.state == "loaded"]
            for entry in lost:
                entry.state = "unloading"
        for entry in lost:
            log.warning(
                "model %s: still in use after %g s; it is unloaded anyway", entry.name, timeout
            )
            self._unload(entry)
        with self._changed:
            while self._resident():  # a model may be loading
                self._changed.wait()

    @contextmanager
    def _lock_pool(self) -> Generator[None, None, None]:
        """Lock the pool; send decisions afterwards, since listeners may call the pool."""
        with self._changed:
            try:
                yield
            finally:
                news, self._news = self._news, []
        for future, lease, error in news:
            if error is not None:
                future.set_exception(error)
            elif lease is not None:
                future.set_result(lease)

    def _entry(self, name: str) -> Entry[T]:
        if name not in self._entries:
            raise ModelError(f"unknown model {name!r}; known: {', '.join(self.names)}")
        return self._entries[name]

    def _settle(self) -> None:
        """Serve, load or unload models. Call it with the lock after each change."""
        self._asked = [one for one in self._asked if not one.future.cancelled()]
        for e in self._all:
            if e.state == "loaded" and e.served is not None and e.served.error is not None:
                e.error, e.leaving = e.served.error, True
        full = False  # an earlier request waits for memory, and precedes others
        for one in self._asked[:]:
            e = one.entry
            if e.state == "loaded" and not e.leaving:
                self._serve(one)
            elif e.state == "unloaded" and not full:
                full = not self._has_begun(one)
            elif e.state != "loading":
                full = True
        for e in self._all:
            if e.leaving and e.is_idle:
                self._send_away(e)
        larger = self._too_many(0, 0)[1]  # models larger than their source's size
        for e in larger[:-1] if len(larger) == len(self._resident()) else larger:
            self._send_away(e)
        here = self._entries
        self._all = [e for e in self._all if e.state != "unloaded" or here.get(e.name) is e]
        self._changed.notify_all()

    def _serve(self, one: _Request[T]) -> None:
        self._asked.remove(one)
        e = one.entry
        assert e.served is not None
        if one.future.set_running_or_notify_cancel():
            self._clock += 1
            e.used, e.n_uses = self._clock, e.n_uses + 1
            lease = Lease(e.served, lambda: self._release(e))
            self._news.append((one.future, lease, None))

    def _fail(self, one: _Request[T], error: Exception) -> None:
        self._asked.remove(one)
        if one.future.set_running_or_notify_cancel():
            self._news.append((one.future, None, error))

    def _release(self, entry: Entry[T], since: float | None = None) -> None:
        with self._lock_pool():
            self._clock += since is None
            entry.n_uses -= 1
            if since is None:
                entry.used = self._clock
            entry.since = monotonic() if since is None else since
            self._settle()

    def _has_begun(self, one: _Request[T]) -> bool:
        """Start to load the model if it fits; else unload idle models if that is enough."""
        size = one.entry.size
        left, leaving = self._too_many(size, 1)
        there = self._resident()
        if left and len(leaving) < len([e for e in there if e.state != "unloading"]):
            if monotonic() - one.since >= self.patience:
                self._take_no_more(one)
            return False
        for e in leaving:
            self._send_away(e)
        if any(e.state == "unloading" for e in there) and not self._fits(there, size):
            return False
        one.entry.state, one.entry.asleep, one.entry.error = "loading", False, None
        threading.Thread(
            target=self._load, args=(one.entry,), name="llama-load", daemon=True
        ).start()
        return True

    def _resident(self) -> list[Entry[T]]:
        return [e for e in self._all if e.state != "unloaded"]

    def _fits(self, there: list[Entry[T]], size: int) -> bool:
        """Return True if a model of this size fits next to the models `there`."""
        if self.most and len(there) >= self.most:
            return False
        return self.budget is None or sum(e.size for e in there) + size <= self.budget

    def _too_many(self, size: int, n: int) -> tuple[bool, list[Entry[T]]]:
        """Return True if n more models of `size` bytes do not fit even after unloading idle models,
        and these idle models, the least recently used first."""
        there = [e for e in self._resident() if e.state != "unloading"]
        excess = sum(e.size for e in there) + size - (self.budget or 0) if self.budget else 0
        surplus = len(there) + n - self.most if self.most else 0
        leaving: list[Entry[T]] = []
        for e in sorted((e for e in there if e.is_idle), key=lambda e: e.used):
            if excess <= 0 and surplus <= 0:
                break
            leaving.append(e)
            excess, surplus = excess - e.size, surplus - 1
        return excess > 0 or surplus > 0, leaving

    def _take_no_more(self, one: _Request[T]) -> None:
        """Mark models in use for unloading, the least recently used first, until `one` fits."""
        there = [e for e in self._resident() if e.state != "unloading" and not e.is_idle]
        there.sort(key=lambda e: e.used)
        while there and not self._fits([e for e in there if not e.leaving], one.entry.size):
            e = there.pop(0)
            if not e.leaving:
                log.info(
                    "model %s: accepts no new requests, because others have waited too long", e.name
                )
            e.leaving = True

    def _send_away(self, entry: Entry[T]) -> None:
        entry.state = "unloading"
        threading.Thread(
            target=self._unload, args=(entry,), name="llama-unload", daemon=True
        ).start()

    def _load(self, entry: Entry[T]) -> None:
        log.info("model %s: loading", entry.name)
        served: T | None = None
        error: Exception | None = None
        while served is None and error is None:
            served, error = _load_model(entry.source)
            if isinstance(error, AllocError | MemoryError) and self._made_room():
                error = None  # the machine had less memory than the budget
        with self._lock_pool():
            entry.served, entry.state = served, "unloaded" if served is None else "loaded"
            entry.error, entry.since = error, monotonic()
            if served is not None:
                entry.size = served.size
            for one in [one for one in self._asked if one.entry is entry]:
                if error is not None:
                    self._fail(one, error)
                else:
                    self._serve(one)
            self._settle()

    def _made_room(self) -> bool:
        """Unload the least recently used idle model; False if all are in use."""
        with self._changed:
            idle = sorted((e for e in self._resident() if e.is_idle), key=lambda e: e.used)
            if not idle:
                return False
            idle[0].state = "unloading"
        self._unload(idle[0])
        return True

    def _unload(self, entry: Entry[T]) -> None:
        log.info("model %s: unloading", entry.name)
        served, entry.served = entry.served, None
        try:
            if served is not None:
                served.close()
        except Exception:
            log.exception("model %s: unloading failed", entry.name)
        finally:
            with self._lock_pool():
                entry.state, entry.leaving = "unloaded", False
                self._settle()

    ask = Former("acquire")
    leave = Former("unload_when_idle")


def _load_model(source: Source[T]) -> tuple[T | None, Exception | None]:
    try:
        return source.load(), None
    except Exception as e:
        return None, e


def _give_back(future: Future[Lease[T]]) -> None:
    if future.exception() is None:
        future.result().end()

"""Freed memory of requests goes back to the system, and garbage is collected in time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from llama_py_server.wire import memory


def test_requests_that_end_together_trim_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    monkeypatch.setattr(memory, "_TRIM_AFTER", 0.0)
    monkeypatch.setattr(memory, "_trim", lambda: trims.append(1))

    async def do() -> None:
        trimmer = memory.Trimmer()
        for n in (1, 2):
            trimmer.trim_soon()
            trimmer.trim_soon()
            while len(trims) < n:
                await asyncio.sleep(0)

    asyncio.run(do())
    assert len(trims) == 2


def test_a_library_without_these_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.return_freed_memory()
    memory._trim()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[memory.GarbageCollector]:
    """A collector that may collect at any time; the objects before it stay as they are."""
    monkeypatch.setattr(memory, "_EVERY", 0.0)
    made = memory.GarbageCollector()
    yield made
    made.close()
    gc.unfreeze()


def collections(do: Callable[[], None]) -> tuple[int, ...]:
    """Collections of each generation while `do` runs 40 times."""
    before = [of["collections"] for of in gc.get_stats()]
    for _ in range(40):
        do()
    return tuple(of["collections"] - n for of, n in zip(gc.get_stats(), before, strict=True))


def test_no_full_collection_delays_a_response(
    collector: memory.GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `tick` makes one, as soon as enough objects are there."""
    kept: list[list[list[None]]] = []

    def allocate() -> None:
        kept.append([[] for _ in range(10_000)])

    _, young, full = collections(allocate)
    assert young >= memory._ENOUGH and full == 0
    monkeypatch.setattr(memory, "_LONG", -1.0)
    before = gc.get_freeze_count()
    collector.tick()
    assert gc.get_freeze_count() > before + 100_000  # the next collection does not scan these
    n = gc.get_stats()[2]["collections"]
    collector.tick()
    assert gc.get_stats()[2]["collections"] == n


class Node:
    """Garbage that only a collection frees."""

    itself: Node


def garbage_after(tick: Callable[[], None]) -> weakref.ref[Node]:
    """Return a reference to an object that was used during a collection, and no longer is."""
    node = Node()
    node.itself = node
    tick()
    return weakref.ref(node)


def test_a_short_collection_freezes_nothing(
    collector: memory.GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_ENOUGH", 0)
    monkeypatch.setattr(memory, "_LONG", 1e9)
    before = gc.get_freeze_count()
    gone = garbage_after(collector.tick)
    assert gc.get_freeze_count() == before and gone() is not None
    collector.tick()
    assert gone() is None


def test_frozen_garbage_is_collected_when_the_server_is_idle(
    collector: memory.GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_ENOUGH", 0)
    monkeypatch.setattr(memory, "_LONG", -1.0)
    gone = garbage_after(collector.tick)
    collector.tick()
    assert gone() is not None
    monkeypatch.setattr(memory, "_SELDOM", -1.0)
    answer = Node()
    memory.ANSWERS.add(answer)
    collector.tick()
    assert gone() is not None
    memory.ANSWERS.discard(answer)
    monkeypatch.setattr(memory, "_IDLE", -1.0)
    collector.tick()
    assert gone() is None


def test_a_server_that_never_pauses_collects_frozen_garbage(
    collector: memory.GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_ENOUGH", 0)
    monkeypatch.setattr(memory, "_LONG", -1.0)
    answer = Node()
    memory.ANSWERS.add(answer)
    try:
        gone = garbage_after(collector.tick)
        collector.tick()
        assert gone() is not None
        monkeypatch.setattr(memory, "_BUSY", -1.0)
        collector.tick()
        assert gone() is None
    finally:
        memory.ANSWERS.discard(answer)


def test_python_collects_again_after_the_server() -> None:
    before = gc.get_threshold()
    memory.GarbageCollector().close()
    assert gc.get_threshold() == before

"""Freed memory of requests goes back to the system."""

from __future__ import annotations

import asyncio

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

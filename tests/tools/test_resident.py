"""What contexts take is given back; a small form of dev/compare/resident.py."""

from __future__ import annotations

from typing import Any

import pytest

import llama_py
from dev.compare.resident import Size, come_and_go, decode_for_long
from llama_py import Context
from tests.support.live_models import live

KEPT: list[Any] = []


def grown(model: Any, n: int) -> tuple[int, int]:
    """Objects and mappings that n contexts leave."""
    first = Size.now()
    come_and_go(model, n, lambda _: None, 64)
    last = Size.now()
    return last.objects - first.objects, last.mappings - first.mappings


def test_contexts_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama_py.load()
    grown(model, 4)  # what is kept once
    objects, mappings = grown(model, 10)
    assert objects < 10 and mappings < 10
    contexts = model.context
    monkeypatch.setattr(model, "context", lambda **o: KEPT.append(contexts(**o)) or KEPT[-1])
    assert grown(model, 4)[0] > 100  # it would have been seen
    KEPT.clear()


@pytest.mark.parametrize("name", ["gemma3-dense", "qwen35moe-moe"])
def test_tokens_leave_nothing(name: str) -> None:
    """Of a context that is full time and again; the first time, what moves keys is loaded."""
    ctx, sizes = Context(live(name, "cpu"), n_ctx=256, n_threads=1), list[Size]()
    decode_for_long(ctx, 800, lambda i: None if i % 200 else sizes.append(Size.now()))
    assert sizes[-1].objects - sizes[1].objects < 20
    assert sizes[-1].mappings - sizes[1].mappings < 10
    assert ctx.memory.seq_pos_max(0) < 256

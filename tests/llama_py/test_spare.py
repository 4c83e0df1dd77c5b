"""A context that is closed leaves its memory and graphs to the next one with its options."""

from __future__ import annotations

import gc
import sys
from typing import Any
from weakref import ref

import numpy as np
import pytest

import llama_py
from llama_py import Context
from llama_py.context.spare import Spare
from tests.support.live_models import live

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="spares need Linux")
PROMPT = [5, 6, 7, 8, 9, 10]


def rows(ctx: Context) -> list[Any]:
    """Logits of a prompt and of two tokens after it."""
    return [ctx.decode(PROMPT), ctx.decode([3]), ctx.decode([4])]


@pytest.mark.parametrize("name", ["gemma3-dense", "qwen35moe-moe", "deepseek4-moe"])
def test_the_next_context_computes_the_same_in_the_same_graphs(name: str) -> None:
    model = live(name, "cpu")
    first = Context(model, n_ctx=256, n_threads=1)
    wanted, memory, graphs = rows(first), first.memory, {id(g) for g, _ in first.runner.graphs}
    for part in memory.parts:
        for _, buffer in part.buffers:
            buffer.clear(0xFF)  # NaN, which must not be in the next one's memory
    first.close()
    first.close()
    with Context(model, n_ctx=256, n_threads=1) as second:
        assert second.memory is memory and second.memory.seq_pos_max(0) == -1
        np.testing.assert_equal(rows(second), wanted)
        assert {id(g) for g, _ in second.runner.graphs} == graphs and second.n_reused >= 2


def test_a_spare_is_for_the_same_options_only() -> None:
    model = llama_py.load()
    for other in ({"n_ctx": 512}, {"n_ctx": 256, "n_threads": 2}, {"n_ctx": 256, "fuse": False}):
        first = model.context(n_ctx=256, n_threads=1)
        memory = first.memory
        first.close()
        assert isinstance(model.spare, Spare)
        with model.context(**{"n_threads": 1, **other}) as second:
            assert second.memory is not memory and model.spare is None
    for other in ({"watch": lambda _: None}, {"check": "ref"}):
        model.spare = None
        model.context(n_ctx=256, **other).close()
        assert model.spare is None
    model.context(n_ctx=256).close()
    model.close()
    assert model.spare is None


def test_settings_are_not_left() -> None:
    model = llama_py.load()
    first = model.context(n_ctx=256, embeddings=True)
    first.set_embeddings_layer_inp([1])
    with first.capture("l_out-0"):
        first.decode(PROMPT)
        first.close()
    with model.context(n_ctx=256, embeddings=True) as second:
        second.decode(PROMPT)
        assert second.cparams.embeddings and not second.layer_inp and second.runner._taps is None


def test_a_model_with_a_spare_is_freed_without_the_collector() -> None:
    model = llama_py.load()
    with model.context(n_ctx=256) as ctx:
        ctx.decode(PROMPT)
    del ctx
    gc.collect()
    gc.disable()
    try:
        gone = ref(model)
        del model
        assert gone() is None
    finally:
        gc.enable()

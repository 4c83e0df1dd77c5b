"""Models that differ from Llama in what their layers keep: the same logits whichever way tokens are
fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, attend_again
from llama_py.blocks.softmax import Scores
from llama_py.context import Context
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import Window
from llama_py.memory.specs import MemorySpecs, SameAs
from llama_py.models.llama import Llama, LlamaHParams
from llama_py.models.trunks.decoder import Layer
from llama_py.weights import Weights
from tests.support.live_models import EXACT, PROMPT, built_as, live, logits, nmse, tokens

CLOSE = 1e-9


def one_by_one(ctx: Context) -> NDArray[np.float32]:
    return np.concatenate([ctx.decode([token]) for token in PROMPT])


class Uncached(Llama):
    """Tokens see those of their batch; nothing is kept."""

    def memory_spec(self, il: int) -> MemorySpecs:
        return ()

    def layer(self, w: Weights, il: int) -> Layer:
        layer = super().layer(w, il)
        layer.attention.cached = False  # type: ignore[attr-defined]
        return layer


class TestNothing:
    @pytest.mark.parametrize("flash_attn", ["on", "off"])
    def test_one_batch_gives_what_a_cache_would(self, flash_attn: str) -> None:
        ctx = Context(built_as(Uncached, "llama-dense"), **{**EXACT, "flash_attn": flash_attn})
        expected = logits(live("llama-dense"), flash_attn=flash_attn)
        # flash attention sees F16 keys, here as there
        assert nmse(expected, ctx.decode(PROMPT, "all")) < CLOSE
        assert not ctx.memory.parts and ctx.memory_breakdown()["ref"]["context"] == 0

    def test_the_next_batch_begins_anew(self) -> None:
        ctx = Context(built_as(Uncached, "llama-dense"), **EXACT, n_seq_max=2)
        first = ctx.decode(PROMPT, "all")
        assert (ctx.decode(PROMPT, "all") == first).all()
        assert ctx.memory.seq_pos_max(0) == -1


class WindowedHParams(LlamaHParams):
    """The last 4 tokens, chunks of 6, all."""

    def window(self, il: int) -> Window | None:
        return (Window(4), Window(6, "chunked"), None)[il]


class TwoWindows(Llama):
    HParams = WindowedHParams


class UncachedTwoWindows(Uncached):
    HParams = WindowedHParams


class TestTwoWindows:
    """With a mask for each cache, against masks of the batch alone."""

    def context(self, kind: type[Llama] = TwoWindows, **options: Any) -> Context:
        model = built_as(kind, "llama-dense", block_count=3)
        return Context(model, **{**EXACT, "n_ctx": 512, **options})

    def test_logits(self) -> None:
        expected = self.context(UncachedTwoWindows).decode(PROMPT, "all")
        for options in ({}, {"n_ubatch": 5}, {"n_seq_max": 2}, {"kv_unified": True}):
            assert nmse(expected, self.context(**options).decode(PROMPT, "all")) < CLOSE
        assert nmse(expected, one_by_one(self.context())) < CLOSE
        without = built_as(Llama, "llama-dense", block_count=3)
        assert nmse(expected, logits(without)) > 1e-4

    def test_cells_out_of_sight_are_used_again(self) -> None:
        ids, ctx = tokens(300), self.context()
        expected = self.context(UncachedTwoWindows, n_ubatch=512).decode(ids)
        assert nmse(expected, ctx.decode(ids)) < CLOSE
        assert [kv.kv_size for kv in ctx.memory.caches.values()] == [512, 256, 256]
        assert all(kv.seq_pos_min(0) > 0 for kv in ctx.memory.windows)

    def test_going_back_and_on(self) -> None:
        ctx = self.context()
        expected = ctx.decode(PROMPT, "all")
        assert ctx.memory.seq_rm(0, 8)
        assert nmse(expected[8:], ctx.decode(PROMPT[8:], "all")) < CLOSE


class Again(Attention):
    """Queries only; keys and values are those of the layer before."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        q, k, v = self.qkv(g, cur, il)
        q, _ = self.place(g, QKV(q, k, v), il)
        return self.output(g, attend_again(g, q, il, Scores(self.kq_scale)))


class Shared(Llama):
    """Layer 1 reads what layer 0 keeps."""

    def memory_spec(self, il: int) -> MemorySpecs:
        return (SameAs(0),) if il else super().memory_spec(il)

    def layer(self, w: Weights, il: int) -> Layer:
        layer = super().layer(w, il)
        if il:
            layer.attention = Again(w, self.hp, out_bias=True, factors=self.factors)
        return layer


class TestSameAs:
    def test_logits(self) -> None:
        model = built_as(Shared, "llama-dense")
        for options in ({"n_ubatch": 5}, {"n_seq_max": 2}, {"flash_attn": "off"}):
            assert nmse(logits(model), logits(model, **options)) < CLOSE
        assert nmse(logits(model), one_by_one(Context(model, **EXACT))) < CLOSE
        assert nmse(logits(live("llama-dense")), logits(model)) > 1e-4

    def test_one_layer_is_kept(self) -> None:
        (kv,) = Context(built_as(Shared, "llama-dense"), **EXACT).memory.caches.values()
        assert list(kv.tensors.k) == list(kv.tensors.v) == [0]
        assert kv.tensors.get_k(1, 256, 0, 1).view_src is kv.tensors.k[0]

    def test_keys_that_moved_are_turned_once(self) -> None:
        moved, other = (Context(built_as(Shared, "llama-dense"), **EXACT) for _ in range(2))
        moved.decode(PROMPT)
        moved.memory.seq_rm(0, 1)
        moved.memory.seq_add(0, 0, -1, 3)
        assert moved.memory.seq_pos_max(0) == 3
        one = other.decode([PROMPT[0], 5])[0]  # one position after the other, then three further
        assert nmse(one, moved.decode([5])[0]) < 1e-6

"""Sequences that go on: one owner for a context, prompts that are not computed twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.decoding.keep import KeepRule, keep_rule
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.decoding.sequences import Sequences
from llama_py.params import GenerateParams
from llama_py.params.speculative import SpeculativeParams
from llama_py.text.generate import stream
from tests.speculative.scripted import greedy
from tests.support.live_models import EXACT, live, tokens


def made(name: str = "llama-dense", **options: Any) -> Context:
    return Context(live(name, "cpu"), **{**EXACT, "n_ctx": 64, **options})


def plain(ids: list[int], n: int, name: str = "llama-dense") -> list[int]:
    """The n tokens that follow, decoded one by one."""
    ctx, found = made(name), []
    row = ctx.decode(ids)[-1]
    for _ in range(n):
        found.append(greedy(row))
        row = ctx.decode(found[-1:])[-1]
    return found


def go_on(sequences: Sequences, seq_id: int, n: int) -> list[int]:
    found: list[int] = []
    while len(found) < n:
        if not sequences.has_rows(seq_id):
            sequences.advance([seq_id])
        found.append(sequences.take(seq_id, greedy)[0])
    return found


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "qwen35moe-moe"])
def test_what_is_held_is_not_computed_again(name: str) -> None:
    ctx, ids = made(name), tokens(20)
    sequences = Sequences.for_context(ctx)
    assert sequences.start(0, ids).n_reused == 0
    first = go_on(sequences, 0, 5)
    sequences.finish(0)
    assert first == plain(ids, 5, name)
    more = [*ids, *first[:3], 7]
    told = sequences.start(0, more)
    assert told.n_reused >= len(ids) - 1
    assert go_on(sequences, 0, 4) == plain(more, 4, name)
    assert sequences.tokens(0) == [*more, *plain(more, 4, name)]


def test_alone_and_together() -> None:
    """A sequence goes on alone, then with another, then alone: the tokens are the same."""
    ctx = made(n_seq_max=2, n_ctx=128)
    sequences, prompts = Sequences.for_context(ctx), (tokens(9), tokens(7, 1))
    sequences.start(0, prompts[0])
    found = [go_on(sequences, 0, 3), []]
    sequences.start(1, prompts[1])
    sequences.advance()
    for _ in range(3):
        for seq_id in (0, 1):
            found[seq_id].append(sequences.take(seq_id, greedy)[0])
        sequences.advance()
    sequences.finish(1)
    found[0].append(sequences.take(0, greedy)[0])
    found[0] += go_on(sequences, 0, 3)
    assert found[0] == plain(prompts[0], 10)
    assert found[1] == plain(prompts[1], 3)
    assert PrefixCache.for_context(ctx).tokens(0) == [*prompts[0], *found[0][:-1]]


def test_what_another_sequence_holds_is_known() -> None:
    ctx, ids = made(n_seq_max=2, n_ctx=128, kv_unified=True), tokens(12)
    sequences = Sequences.for_context(ctx)
    sequences.start(0, ids)
    first = go_on(sequences, 0, 2)
    told = sequences.start(1, [*ids, 5])
    assert told.n_reused == len(ids)
    assert sequences.tokens(1) == [*ids, 5]
    assert go_on(sequences, 1, 3) == plain([*ids, 5], 3)
    assert go_on(sequences, 0, 2) == plain(ids, 4)[2:] and first == plain(ids, 2)


def test_nothing_to_go_on_from() -> None:
    sequences = Sequences.for_context(made())
    with pytest.raises(ContextError, match="the prompt is empty"):
        sequences.start(0, [])
    sequences.start(0, tokens(3))
    sequences.advance([0])
    with pytest.raises(ContextError, match="no new token to continue"):
        sequences.advance([0])


def test_one_owner_for_a_context() -> None:
    ctx = made("qwen35-dense", n_rs_seq=2)
    sequences = Sequences.for_context(ctx)
    assert Sequences.for_context(ctx) is sequences and sequences.drafts is None
    drafted = Sequences.for_context(ctx, SpeculativeParams(spec_type="ngram-simple"))
    assert Sequences.for_context(ctx) is drafted is not sequences
    assert drafted.cache is sequences.cache is PrefixCache.for_context(ctx)
    list(stream(ctx, tokens(5), max_tokens=3))  # undrafted: the drafters stay
    assert Sequences.for_context(ctx) is drafted
    with pytest.warns(DeprecationWarning, match="Context.reuse is deprecated"):
        assert ctx.reuse is drafted.cache
    with pytest.warns(DeprecationWarning, match="Context.speculator is deprecated"):
        assert ctx.speculator is drafted
    ctx.close()
    assert ctx.memory_breakdown()[ctx.devices[-1].name]["reuse"] == 0


def test_epochs() -> None:
    """A token after a token begins none; all else that changes results does."""
    ctx = made(n_seq_max=2, n_ctx=128)
    ctx.decode(tokens(5))
    ctx.decode([1])
    before = ctx.epoch
    ctx.decode([2])
    assert ctx.epoch == before and ctx.n_followed == 1

    def changes(do: Any) -> None:
        before = ctx.epoch
        do()
        assert ctx.epoch > before

    changes(lambda: ctx.decode(Batch([3], seq_ids=[(1,)])))
    changes(lambda: ctx.memory.seq_rm(1))
    changes(lambda: ctx.set_control_vector(np.ones((1, ctx.model.hparams.n_embd), np.float32)))
    changes(lambda: ctx.set_adapters({}, 0))
    changes(lambda: ctx.set_embeddings_nextn(False))
    changes(lambda: setattr(ctx, "on_graph", None))
    changes(ctx.clear)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, None),
        ({"context_shift": True}, KeepRule(0)),
        ({"context_shift": True, "n_keep": 4}, KeepRule(4)),
        ({"context_shift": True, "n_keep": -1}, KeepRule(10)),
        ({"context_shift": True, "max_tokens": -2}, None),
    ],
)
def test_rules_of_what_stays(options: dict[str, Any], rule: KeepRule | None) -> None:
    ctx = made()
    bos = int(ctx.model.tokenizer.add_bos)
    found = keep_rule(ctx, GenerateParams(**options), 10)
    if rule is not None and options.get("n_keep", 0) >= 0:
        rule = KeepRule(rule.n + bos)
    assert found == rule
    assert keep_rule(ctx, GenerateParams(**options), 10, mixed=True) is None
    if rule is not None:
        n = ctx.cparams.n_ctx_seq
        spared = keep_rule(ctx, GenerateParams(**options), 2 * n, n_spare=n - 3)
        assert spared is not None and spared.n <= 3

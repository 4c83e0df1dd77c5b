"""A token after a token goes a shorter way through a context; nothing tells which way it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.batch import END, Batch
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.text.generate import stream
from tests.support.graph_models import CONTINUING, first_of_each, memory_kinds
from tests.support.live_models import live, made, model_of, tokens

N_CTX = 64


class Pair:
    """Two contexts to which the same is done; one of them forgets how to follow."""

    def __init__(self, name: str, **options: Any) -> None:
        options = {"n_ctx": N_CTX, "n_ubatch": 16, "n_seq_max": 3, **options}
        self.quick, self.plain = (Context(live(name, "cpu"), **options) for _ in range(2))

    @property
    def followed(self) -> int:
        return self.quick.n_followed

    def decode(self, *batch: Any, **how: Any) -> None:
        self.plain.on_graph = None  # another epoch
        rows, expected = self.quick.decode(*batch, **how), self.plain.decode(*batch, **how)
        assert np.array_equal(rows, expected)

    def each(self, do: Any) -> None:
        do(self.quick)
        do(self.plain)

    def same_state(self) -> None:
        for seq_id in range(3):
            assert self.quick.save_state(seq_id) == self.plain.save_state(seq_id)
        assert self.quick.n_reused == self.plain.n_reused


@pytest.mark.parametrize("name", CONTINUING)
def test_the_same_rows_and_the_same_memory(name: str) -> None:
    pair = Pair(name)
    pair.decode(tokens(5))
    for token in tokens(12):
        pair.decode([token])
    pair.same_state()


TOGETHER = [(name, True) for name in CONTINUING[:2]] + [
    ("llama-dense", False),
    ("gemma3-dense", True),
    ("gemma3-dense", False),
    ("qwen35moe-moe", True),
    ("qwen35moe-moe", False),
    ("mamba-dense", False),
]


@pytest.mark.parametrize(("name", "unified"), TOGETHER)
def test_several_sequences_go_on_together(name: str, unified: bool) -> None:
    """Past the end of windows; one of them leaves, and comes again."""
    pair = Pair(name, kv_unified=unified, n_ctx=3 * N_CTX)
    for seq_id, n in enumerate((3, 7, 5)):
        pair.decode(Batch(tokens(n, seq_id), seq_ids=[(seq_id,)] * n))
    for step in range(24):
        seqs = [0, 1] if 10 <= step < 14 else [0, 1, 2]
        ids = tokens(len(seqs), step)
        pair.decode(Batch(ids, seq_ids=[(s,) for s in seqs], outputs=[True] * len(seqs)))
    assert pair.followed >= 15
    pair.same_state()


@pytest.mark.parametrize(
    ("name", "n"),
    [(n, 2) for n in CONTINUING] + [(n, 5) for n in first_of_each(memory_kinds, CONTINUING)],
)
def test_several_tokens_of_a_sequence_go_on_together(name: str, n: int) -> None:
    """Past the end of windows too; then one token, and several again."""
    pair = Pair(name)
    pair.decode(tokens(3))
    for step in range(8):
        pair.decode(tokens(n, step), "all")
    if name in ("llama-dense", "qwen35-dense"):
        assert pair.followed >= 6
    pair.decode([7])
    for step in range(3):
        pair.decode(tokens(n, step), "all")
    pair.same_state()


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
@pytest.mark.parametrize("unified", [False, True])
def test_several_tokens_of_one_sequence_beside_others(name: str, unified: bool) -> None:
    pair = Pair(name, kv_unified=unified, n_ctx=3 * N_CTX)
    for seq_id in (0, 2, 1):
        pair.decode(Batch(tokens(3, seq_id), seq_ids=[(seq_id,)] * 3))
    for step in range(5):
        pair.decode(tokens(4, step), "all", 1)
    assert pair.followed >= 3
    before = pair.followed
    pair.decode(tokens(4), "all", 2)  # another one
    pair.decode(tokens(4), "last", 2)  # not all are wanted
    pair.decode(tokens(3), "all", 2)  # fewer
    assert pair.followed == before
    pair.same_state()


def test_several_tokens_and_back() -> None:
    """As drafts do that are refused in part."""
    pair = Pair("qwen35-dense", n_rs_seq=3)
    for step in range(4):
        pair.decode(tokens(4, step), "all")
        pair.decode(tokens(4, step + 1), "all")
        if step % 2:
            pair.each(lambda ctx: ctx.memory.seq_rm(0, ctx.memory.seq_pos_max(0) - 1))
    assert pair.followed >= 4
    pair.same_state()


@pytest.fixture
def pair() -> Pair:
    pair = Pair("qwen35-dense", kv_unified=True)
    for token in tokens(6):
        pair.decode([token])
    assert pair.followed == 4  # the state has its place from the second on
    return pair


def add_directions(ctx: Context) -> None:
    ctx.set_control_vector(np.ones((3, ctx.model.hparams.n_embd), np.float32))


ACTS: dict[str, Callable[[Context], Any]] = {
    "positions are removed": lambda ctx: ctx.memory.seq_rm(0),
    "a sequence is copied": lambda ctx: ctx.memory.seq_cp(0, 1),
    "others are removed": lambda ctx: ctx.memory.seq_keep(0),
    "all is forgotten": lambda ctx: ctx.clear(),
    "another sequence goes on": lambda ctx: ctx.decode([3, 4], seq_id=2),
    "a state is put in place": lambda ctx: ctx.load_state(ctx.save_state(0), 0),
    "a text is read": lambda ctx: ctx.decode([1, 2, 3]),
    "embeddings are wanted": lambda ctx: ctx.set_embeddings_nextn(True),
    "directions are added": add_directions,
}


@pytest.mark.parametrize("what", ACTS)
def test_what_happens_between_two_tokens_counts(pair: Pair, what: str) -> None:
    before = pair.followed
    pair.each(ACTS[what])
    pair.decode([7])
    assert pair.followed == before
    for token in tokens(4):
        pair.decode([token])
    assert pair.followed > before
    pair.same_state()


KEPT: dict[str, Callable[[Context], Any]] = {
    "moved": lambda ctx: ctx.memory.seq_add(0, 0, -1, 3),
    "halved": lambda ctx: ctx.memory.seq_div(0, 4, -1, 2),
    "gone from the front": lambda ctx: ctx.memory.seq_rm(0, 0, 2),
    "of another sequence, removed": lambda ctx: ctx.memory.seq_rm(1),
}


@pytest.mark.parametrize("what", KEPT)
def test_positions_that_are(what: str) -> None:
    pair = Pair("llama-dense", kv_unified=True)
    pair.decode(Batch([1, 2], seq_ids=[(0, 1)] * 2))
    for token in tokens(6):
        pair.decode([token])
    before = pair.followed
    pair.each(KEPT[what])
    pair.decode([7])
    assert pair.followed == before
    pair.decode([8])
    pair.same_state()


BATCHES: dict[str, tuple[Batch, bool]] = {
    "as decode counts": (Batch([5]), True),
    "with its sequence": (Batch([5], seq_ids=[(0,)], outputs=[True]), True),
    "with a position": (Batch([5], pos=[6]), True),
    "of another sequence": (Batch([5], seq_ids=[(1,)]), False),
    "of two sequences": (Batch([5], seq_ids=[(1, 2)]), False),
    "without logits": (Batch([5], outputs=[False]), False),
    "two": (Batch([5, 6]), False),
}


@pytest.mark.parametrize("what", BATCHES)
def test_batches(pair: Pair, what: str) -> None:
    batch, follows = BATCHES[what]
    before = pair.followed
    pair.decode(batch)
    assert pair.followed == before + follows
    pair.decode([1])
    pair.same_state()


@pytest.mark.parametrize(
    "how",
    [
        {"pos": 6},
        {"outputs": True},
        {"outputs": [[True], [False, True]]},
        {"seq_ids": [0]},
        {"seq_ids": 0},
        {"seq_ids": ["a"]},
    ],
)
def test_a_batch_that_is_none_is_refused_as_ever(pair: Pair, how: dict[str, Any]) -> None:
    for ctx in (pair.quick, pair.plain):
        with pytest.raises(ContextError):
            ctx.decode(Batch([5], **how))
    pair.decode([1])
    pair.same_state()


@pytest.mark.parametrize("token", [-1, 1 << 20, 1.5, True])
def test_a_token_that_is_none_is_refused_as_ever(pair: Pair, token: Any) -> None:
    for ctx in (pair.quick, pair.plain):
        with pytest.raises(ContextError):
            ctx.decode([token])
    pair.decode([1])
    pair.same_state()


def test_a_full_context_is_refused_as_ever(pair: Pair) -> None:
    room = pair.quick.n_ctx - pair.quick.memory.seq_pos_max(0) - 1
    pair.decode([3] * (room - 4))
    for _ in range(4):
        pair.decode([3])
    for ctx in (pair.quick, pair.plain):
        with pytest.raises(ContextError, match="does not fit"):
            ctx.decode([3])
    pair.same_state()


def test_an_interrupt_leaves_what_it_leaves_otherwise(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for ctx in (pair.quick, pair.plain):
            patch.setattr(ctx.runner, "_compute", interrupted)
            if ctx is pair.plain:
                ctx.on_graph = None  # another epoch
            with pytest.raises(KeyboardInterrupt):
                ctx.decode([3])
    pair.same_state()
    pair.decode([1, 2])


def test_where_nothing_is_kept_each_token_is_a_text_of_its_own() -> None:
    ctx = Context(live("bert-dense", "cpu"), n_ctx=N_CTX, embeddings=True, pooling="none")
    found = []
    for _ in range(3):
        ctx.decode([5], "all")
        assert ctx.embd is not None
        found.append(ctx.embd.copy())
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_what_was_decoded_beside_the_reuse_is_not_taken_for_known() -> None:
    """The way is the same short one, but the reuse was not told of a token."""
    ctx = Context(live("llama-dense", "cpu"), n_ctx=N_CTX)
    PrefixCache.for_context(ctx).start(tokens(6))
    PrefixCache.for_context(ctx).decode(tokens(6))
    PrefixCache.for_context(ctx).decode([3])
    ctx.decode([4])
    PrefixCache.for_context(ctx).decode([5])
    assert PrefixCache.for_context(ctx).tokens(0) == [*tokens(6), 3]
    prompt = [*tokens(6), 3, 5, 7]
    told = PrefixCache.for_context(ctx).start(prompt)
    again = Context(live("llama-dense", "cpu"), n_ctx=N_CTX)
    expected = again.decode(prompt)
    np.testing.assert_allclose(
        PrefixCache.for_context(ctx).decode(prompt[told.n_reused :]), expected, rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("drafts", [{}, {"spec_type": "ngram-simple"}], ids=["", "drafts"])
def test_logits_processors_may_decode(drafts: dict[str, Any]) -> None:
    """As guidance does, which compares with another sequence of the context."""
    ctx = Context(live("llama-dense", "cpu"), n_ctx=2 * N_CTX, n_seq_max=2)
    seen = []

    def process(ids: Any, logits: Any) -> Any:
        before = logits.copy()
        ctx.decode([ids[-1]], seq_id=1)
        seen.append(np.array_equal(before, logits))
        return logits

    assert len([*stream(ctx, tokens(5), max_tokens=6, logits_processors=[process], **drafts)])
    assert len(seen) > 2 and all(seen)


def test_hidden_states_that_are_not_finite_are_refused() -> None:
    ctx = Context(model_of(*made("qwen35-mtp"), "cpu", load_mtp=True), n_ctx=N_CTX, mtp=True)
    h = np.ones((1, ctx.model.hparams.n_embd), np.float32)
    for _ in range(3):
        ctx.decode(Batch([1], h))
    with pytest.raises(ContextError, match="finite"):
        ctx.decode(Batch([1], h * np.nan))


@pytest.mark.parametrize("name", ["llama-dense", "mamba-dense"])
def test_there_is_no_position_after_the_last(name: str) -> None:
    pair = Pair(name)
    pair.decode(Batch([1], pos=[END - 2]))
    pair.decode([2])
    for ctx in (pair.quick, pair.plain):
        with pytest.raises(ContextError, match=f"at position {END}: 1 more do not fit"):
            ctx.decode([3])
    pair.same_state()

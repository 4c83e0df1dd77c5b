"""Keys made of several tokens: what is kept, taken back, copied and saved of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.errors import ContextError, HParamsError, OutOfRange, WeightsError
from ggml_py.types import F32
from llama_py.batch import Batch, UBatch, ubatch_reserve
from llama_py.context import Context
from llama_py.hparams.layer_shape import Window
from llama_py.memory.cells import KVCells
from llama_py.memory.compressed import CompressedMemory
from llama_py.memory.compressed_plan import CompressedLayout, make_plan
from llama_py.memory.mask import MaskRule, kq_mask
from llama_py.memory.specs import CompressedSpec
from tests.support.live_models import changed, live, made, model_of, nmse, tokens

NAME = "deepseek4-moe"
EXACT: dict[str, Any] = {"n_ctx": 256, "flash_attn": False, "type_k": "f32", "type_v": "f32"}
PROMPT, OTHER, MORE = tokens(127, seed=1), tokens(9, seed=2), tokens(6, seed=3)
CLOSE = 1e-10


def context(**options: Any) -> Context:
    return Context(live(NAME, "cpu"), **{**EXACT, **options})


def memory(ctx: Context) -> CompressedMemory:
    assert isinstance(ctx.memory.recr, CompressedMemory)
    return ctx.memory.recr


def after(*parts: Sequence[int]) -> NDArray[np.float32]:
    """The last logits of parts, one batch after another, in a new context."""
    ctx = context()
    return [ctx.decode(part) for part in parts][-1]


@pytest.mark.parametrize("n_seq_max", [1, 2])
@pytest.mark.parametrize(("n_prompt", "back"), [(5, 1), (125, 3), (127, 2)])
def test_tokens_are_taken_back(n_prompt: int, back: int, n_seq_max: int) -> None:
    """Also those that completed a key of four, or of 128."""
    ctx, prompt = context(n_rs_seq=3, n_seq_max=n_seq_max, n_ctx=512), PROMPT[:n_prompt]
    ctx.decode(prompt)
    ctx.decode(MORE[:4])
    assert ctx.memory.seq_rm(0, n_prompt + 4 - back)
    assert not ctx.memory.seq_rm(0, n_prompt)  # a second time only after more tokens
    expected = after(prompt, MORE[: 4 - back], OTHER)
    assert nmse(expected, ctx.decode(OTHER)) < CLOSE


def test_no_more_is_taken_back_than_the_last_tokens_that_came_together() -> None:
    ctx = context(n_rs_seq=3)
    ctx.decode(PROMPT[:9])
    ctx.decode(PROMPT[9:10])
    assert not ctx.memory.seq_rm(0, 8)
    assert ctx.memory.seq_rm(0, 9)
    assert nmse(after(PROMPT[:9], OTHER), ctx.decode(OTHER)) < CLOSE


def test_the_last_tokens_of_a_prompt_come_together() -> None:
    ctx = context(n_rs_seq=3, n_ubatch=16)
    ctx.decode(PROMPT[:33])  # 16 and 16 would leave one
    assert ctx.memory.seq_rm(0, 30)
    assert nmse(after(PROMPT[:30], OTHER), ctx.decode(OTHER)) < CLOSE


def test_a_sequence_is_copied_as_it_was_taken_back() -> None:
    ctx = context(n_rs_seq=3, n_seq_max=2, n_ctx=512)
    ctx.decode(PROMPT[:14])
    ctx.decode(MORE[:4])
    assert ctx.memory.seq_rm(0, 15)
    ctx.memory.seq_cp(0, 1)
    expected = after(PROMPT[:14], MORE[:1], OTHER)
    assert nmse(expected, ctx.decode(OTHER, seq_id=1)) < CLOSE
    assert nmse(expected, ctx.decode(OTHER)) < CLOSE


@pytest.mark.parametrize("kv_unified", [False, True])
def test_a_checkpoint_has_states_but_no_keys(kv_unified: bool) -> None:
    ctx = context(n_seq_max=2, n_ctx=512, kv_unified=kv_unified)
    ctx.decode(PROMPT[:50], seq_id=1)
    small, whole = (ctx.save_state(1, partial=partial) for partial in (True, False))
    ctx.decode(PROMPT[50:], seq_id=1)
    ctx.load_state(small, 1, partial=True)
    assert ctx.memory.seq_pos_max(1) == 49
    expected = after(PROMPT[:50], OTHER)
    assert nmse(expected, ctx.decode(OTHER, seq_id=1)) < CLOSE
    keys = sum(
        t.nb[1] * (50 // one.kept.ratio)
        for one in memory(ctx).kinds.values()
        for t in one.keys.list_tensors()
    )
    assert keys <= len(whole) - len(small) < keys + 100
    with pytest.raises(ContextError, match="no keys of its 50 tokens"):
        ctx.load_state(small, 0, partial=True)
    ctx.load_state(whole, 0)
    assert nmse(expected, ctx.decode(OTHER)) < CLOSE


def test_what_cannot_be_done_is_refused_without_a_change() -> None:
    ctx = context(n_seq_max=2, n_ctx=512, kv_unified=True)
    ctx.decode(PROMPT[:20])
    assert not ctx.memory.seq_rm(0, 3, 9) and not ctx.memory.seq_rm(0, 12)
    with pytest.raises(ContextError, match="with compressed keys cannot be moved"):
        ctx.memory.seq_add(0, 0, -1, 2)
    with pytest.raises(ContextError, match="only be copied for a whole sequence"):
        ctx.memory.seq_cp(0, 1, 0, 8)
    with pytest.raises(ContextError, match="a token belongs to several sequences"):
        context(n_seq_max=2, n_ctx=512).decode(Batch([1, 2], seq_ids=[(0, 1), (1,)]))
    assert nmse(after(PROMPT[:20], OTHER), ctx.decode(OTHER)) < CLOSE


@pytest.mark.parametrize("unified", [False, True])
def test_a_prompt_of_several_sequences(unified: bool) -> None:
    ctx = context(n_seq_max=3, n_ctx=768, kv_unified=unified)
    ctx.decode(Batch(PROMPT[:30], seq_ids=[(0, 2)] * 30))
    rows = ctx.decode(Batch(PROMPT[30:50], seq_ids=[(0, 2)] * 20))
    assert nmse(after(PROMPT[:49], PROMPT[49:50]), rows) < CLOSE
    assert [ctx.memory.seq_pos_max(s) for s in range(3)] == [49, -1, 49]
    for s, text in enumerate((OTHER, PROMPT[:50], PROMPT[50:60])):
        expected = after(text) if s == 1 else after(PROMPT[:50], text)
        assert nmse(expected, ctx.decode(text, seq_id=s)) < CLOSE
    for s in (0, 2):
        assert ctx.memory.seq_rm(s) and not ctx.decode(PROMPT[:5], "none", s).size
    with pytest.raises(ContextError, match="a token belongs to several sequences"):
        ctx.decode(Batch([1], seq_ids=[(0, 2)]))  # which nobody knows to be equal


def test_positions_end_with_the_context() -> None:
    ctx = context()
    with pytest.raises(ContextError, match="position must be less than 256"):
        ctx.decode(Batch([1, 2], pos=[255, 256]))
    with pytest.raises(ContextError, match="must be consecutive"):
        ctx.decode(Batch([1, 2], pos=[7, 7]))
    assert ctx.decode([*PROMPT, *PROMPT, 1, 2]).shape == (1, ctx.n_vocab)  # 256 of them


def test_states_that_seed_drafts_are_the_same_of_all_and_of_outputs() -> None:
    model = model_of(*made("deepseek4-mtp"), "cpu", load_mtp=True)
    found = []
    for masked in (False, True):
        ctx = Context(model, **EXACT)
        ctx.set_embeddings_nextn(True, masked)
        ctx.decode(PROMPT[:40], "all" if masked else "last")
        assert ctx.h_nextn is not None and ctx.h_nextn.shape == (40, 4 * model.hparams.n_embd)
        found.append(ctx.h_nextn)
    np.testing.assert_array_equal(*found)


def test_layers_tell_of_the_mean_of_their_streams() -> None:
    ctx = context()
    ctx.set_embeddings_layer_inp([1, 3])
    with ctx.capture("l_last-*") as values:
        ctx.decode(OTHER)
    for il in (1, 3):
        expected = np.reshape(values[f"l_last-{il - 1}"], (len(OTHER), 4, -1)).mean(1)
        np.testing.assert_allclose(ctx.layer_inp[il], expected, rtol=1e-5, atol=1e-6)


def test_a_draft_needs_tokens_and_all_streams() -> None:
    ctx = Context(model_of(*made("deepseek4-mtp"), "cpu", load_mtp=True), **EXACT, mtp=True)
    n = ctx.model.hparams.n_embd
    with pytest.raises(ContextError, match=rf"embd must have shape \[1, {4 * n}\]"):
        ctx.decode(Batch([1], embd=np.zeros((1, n), np.float32)))
    with pytest.raises(ContextError, match="needs tokens in addition to hidden states"):
        ctx.decode(Batch(embd=np.zeros((1, n), np.float32)))


def test_a_projection_of_groups_may_be_a_matrix() -> None:
    metadata, arrays = made(NAME)
    expected = Context(model_of(metadata, arrays, "cpu"), **EXACT).decode(OTHER)
    for name in [name for name in arrays if name.endswith("attn_output_a.weight")]:
        arrays[name] = arrays[name].reshape(-1, arrays[name].shape[-1])
    found = Context(model_of(metadata, arrays, "cpu"), **EXACT).decode(OTHER)
    np.testing.assert_array_equal(found, expected)


def test_embeddings_in_place_of_tokens_have_a_bias_of_their_own() -> None:
    """And do not choose experts by a table."""
    embd = np.random.default_rng(5).standard_normal((9, 64)).astype(np.float32)

    def logits(*without: str) -> NDArray[np.float32]:
        def leave_out(_: Any, arrays: Any) -> None:
            for name in [name for name in arrays if name.endswith(without)]:
                del arrays[name]

        model = model_of(*changed(NAME, leave_out), "cpu")
        return Context(model, **EXACT).decode(Batch(embd=embd))

    assert nmse(logits(), logits("exp_probs_b_vl.bias")) > 1e-4
    by_token = Context(live(NAME, "cpu"), **EXACT).decode(OTHER)
    assert np.isfinite(logits()).all() and by_token.shape == logits().shape


def test_a_table_of_experts_must_have_whole_numbers() -> None:
    metadata, arrays = made(NAME)
    name = "blk.0.ffn_gate_tid2eid.weight"
    arrays[name] = arrays[name].astype(np.float32)
    with pytest.raises(WeightsError, match="must be i32, got f32"):
        Context(model_of(metadata, arrays, "cpu", {name: F32}), **EXACT)


@pytest.mark.parametrize("expert", [-1, 6, 2**31 - 1])
@pytest.mark.parametrize("device", ["cpu", "ref"])
def test_a_table_names_experts_that_there_are(device: str, expert: int) -> None:
    metadata, arrays = made(NAME)
    arrays["blk.0.ffn_gate_tid2eid.weight"][:] = expert
    ctx = Context(model_of(metadata, arrays, device), **EXACT)
    with pytest.raises(OutOfRange, match=f"index must be in .0, 6., got {expert}"):
        ctx.decode(OTHER)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("attention.compress_ratios", [0, 4, 64], "must each be 0, 4 or 128"),
        ("attention.compress_ratios", [0, 4], "must have 3 items"),
        ("attention.output_group_count", 3, "must divide head_count = 4"),
        ("attention.head_count_kv", 2, "must be 1"),
        ("attention.indexer.key_length", 48, "a multiple of 64"),
        ("expert_gating_func", 2, "must be 4"),
        ("hyper_connection.count", 3, "must be from 4 to 4"),
        ("hyper_connection.sinkhorn_iterations", 0, "must be from 1 to 1000"),
    ],
)
def test_keys_that_make_no_sense(key: str, value: Any, rule: str) -> None:
    metadata, arrays = made(NAME)
    metadata[f"deepseek4.{key}"] = value
    with pytest.raises(HParamsError, match=rule):
        model_of(metadata, arrays, "cpu")


def test_layers_that_draft_have_no_compressed_keys() -> None:
    metadata, arrays = made("deepseek4-mtp")
    metadata["deepseek4.attention.compress_ratios"] = [4, 0, 4]
    with pytest.raises(HParamsError, match="must be 0 for NextN layers"):
        model_of(metadata, arrays, "cpu")


def ubatch(first: int, n: int, seqs: Sequence[int] = (0,)) -> UBatch:
    """The same positions of sequences."""
    made = ubatch_reserve(n, len(seqs))
    made.pos = np.tile(np.arange(first, first + n, dtype=np.int32), len(seqs))
    made.seq_id = [(s,) for s in seqs for _ in range(n)]
    made.seq_id_unq = list(seqs)
    return made


def test_rows_of_a_plan() -> None:
    """As llama.cpp's: two sequences of three, from position 6 on, each complete one key."""
    sizes = CompressedLayout(CompressedSpec("csa", 4, 8, overlap=True), 256, 3, 2)
    plan = make_plan(ubatch(6, 3, (1, 2)), sizes, {1: 2})
    assert plan.state_pos.tolist() == [2, 3, 0, 2, 3, 0]
    assert plan.write.tolist() == [256 + 1, 512 + 1] and plan.write_pos.tolist() == [4, 4]
    now = [24, 25], [27, 28]  # the tokens' rows, after 3 * 8 of states
    before = [8, 9, 10, 11, 16, 17, 18, 19]
    assert plan.read.tolist() == [*before, 12, 13, *now[0], 20, 21, *now[1]]
    assert plan.persist_dst.tolist() == [8, 14, 15, 16, 22, 23]
    assert plan.persist_src.tolist() == [2, 0, 1, 5, 3, 4]
    assert plan.restore_src[8:16].tolist() == [48 + 8 + i for i in range(8)]
    assert plan.restore_src[16:].tolist() == plan.restore_dst[16:].tolist() == [*range(16, 24)]
    one_back = plan.snapshot_src[16:24].tolist()  # of sequence 0, which is not here: itself
    assert plan.snapshot_src[:8].tolist() == [*range(24, 32)] and len(one_back) == 8
    assert plan.n_visible.tolist() == [1, 2, 2] * 2 and plan.n_kv == 256


def test_a_key_that_nobody_sees_keeps_the_graph_the_same() -> None:
    for overlap, ratio in ((True, 4), (False, 128)):
        sizes = CompressedLayout(CompressedSpec("x", ratio, 8, overlap), 256, 1, 0)
        plans = [make_plan(ubatch(first, 1), sizes, {}) for first in (ratio - 2, ratio - 1)]
        assert plans[0].n_each == plans[1].n_each
        assert [p.write.tolist() for p in plans] == [[255], [0]]


def test_a_window_does_not_hide_what_is_in_the_same_ubatch() -> None:
    """Where tokens see later ones, as those of an image."""
    cells = KVCells(16, 1)
    cells.place(np.arange(8), np.arange(8, dtype=np.int32), [(0, slice(0, 8))])
    rule = MaskRule(False, Window(2), spans=True)
    seen = kq_mask(rule, False, 8, ubatch(4, 4), [cells])[0] == 0
    assert seen[0].tolist() == [False, False, False, True, True, True, True, True]
    assert seen[3].tolist() == [False] * 4 + [True] * 4

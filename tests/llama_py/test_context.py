"""Contexts: the same logits whichever way tokens are fed, and a memory that stays right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggml_py.backend import get_tensor, set_tensor
from ggml_py.errors import AllocError, ContextError
from llama_py.batch import Batch
from llama_py.context import Context, state
from llama_py.graph.result import GraphResult
from tests.support.live_models import N_VOCAB, live, nmse, tokens

MODELS = ["llama-dense", "qwen35moe-moe"]
CLOSE = 1e-6  # one order of operations against another, with an F16 cache
PROMPT = tokens(17)


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def context(name: str, **options: Any) -> Context:
    return Context(live(name), **{"n_ctx": 256, "n_ubatch": 32, **options})


@pytest.fixture(scope="module")
def expected() -> Iterator[dict[str, Any]]:
    """Logits of all tokens of PROMPT, in one piece."""
    yield {name: context(name).decode(PROMPT, logits="all") for name in MODELS}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_ubatch": 8},
        {"flash_attn": "off"},
        {"type_k": "f32", "type_v": "f32"},
        {"n_seq_max": 3},
        {"n_seq_max": 3, "kv_unified": True},
        {"forms": {"delta_net": "chunked"}},
    ],
)
def test_options_do_not_change_the_logits(
    name: str, options: dict[str, Any], expected: Any
) -> None:
    found = context(name, **options).decode(PROMPT, logits="all")
    assert found.shape == (len(PROMPT), N_VOCAB)
    assert nmse(expected[name], found) < 1e-5


def test_token_by_token(name: str, expected: Any) -> None:
    ctx = context(name)
    found = np.concatenate([ctx.decode([t]) for t in PROMPT])
    assert nmse(expected[name], found) < CLOSE
    assert ctx.n_reused >= len(PROMPT) - 2


def test_tokens_depend_on_those_before(name: str, expected: Any) -> None:
    """The weights are live: forgetting the past changes the logits a lot."""
    found = context(name).decode(PROMPT[-1:])
    assert nmse(expected[name][-1:], found) > 0.1


def two(a: list[int], b: list[int], **options: Any) -> Batch:
    """a of sequence 0 and b of sequence 1, alternating as far as both go."""
    n = min(len(a), len(b))
    pairs = [p for i in range(n) for p in ((a[i], [0]), (b[i], [1]))]
    pairs += [(t, [0]) for t in a[n:]] + [(t, [1]) for t in b[n:]]
    return Batch([t for t, _ in pairs], seq_ids=[s for _, s in pairs], **options)


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("n_ubatch", [8, 64])
def test_sequences_do_not_see_each_other(
    name: str, unified: bool, n_ubatch: int, expected: Any
) -> None:
    other = tokens(9, seed=5)
    alone = context(name).decode(other, logits="all")
    ctx = context(name, n_seq_max=2, kv_unified=unified, n_ubatch=n_ubatch)
    batch = two(PROMPT, other)
    found = ctx.decode(batch, logits="all")
    for s, wanted in ((0, expected[name]), (1, alone)):
        rows = [i for i, ids in enumerate(batch.seq_ids or []) if ids == [s]]
        assert nmse(wanted, found[rows]) < CLOSE
    next_found = ctx.decode(Batch([3, 4], seq_ids=[[1], [0]], outputs=[True, True]))
    one = context(name)
    one.decode(PROMPT)
    assert nmse(one.decode([4]), next_found[1:]) < CLOSE


def test_outputs_are_in_the_order_of_the_batch(name: str, expected: Any) -> None:
    ctx = context(name, n_seq_max=2, n_ubatch=8)
    want = [3, 15, 16]
    outputs = [i in want for i in range(len(PROMPT))]
    found = ctx.decode(Batch(PROMPT, seq_ids=[[1]] * len(PROMPT), outputs=outputs))
    assert nmse(expected[name][want], found) < CLOSE


def test_no_outputs(name: str, expected: Any) -> None:
    ctx = context(name, n_ubatch=8)
    assert ctx.decode(PROMPT[:-1], logits="none").shape == (0, N_VOCAB)
    assert nmse(expected[name][-1:], ctx.decode(PROMPT[-1:])) < CLOSE


def test_a_shared_prompt(name: str) -> None:
    ctx = context(name, n_seq_max=3, kv_unified=True)
    alone = context(name)
    ctx.decode(PROMPT)
    ctx.memory.seq_cp(0, 2)
    found = ctx.decode(Batch([5, 6], seq_ids=[[2], [0]], outputs=[True, True]))
    alone.decode(PROMPT)
    assert nmse(alone.decode([6]), found[1:]) < CLOSE
    alone.clear()
    alone.decode(PROMPT)
    assert nmse(alone.decode([5]), found[:1]) < CLOSE


@pytest.mark.parametrize("n_seq_max", [1, 2])
def test_a_used_slot_equals_a_fresh_one_even_after_nan(name: str, n_seq_max: int) -> None:
    fresh = context(name, n_seq_max=n_seq_max).decode(PROMPT)
    ctx = context(name, n_seq_max=n_seq_max)
    ctx.decode(tokens(9, seed=2))
    mem = ctx.memory
    if mem.recr is not None:
        for t in mem.recr.all_tensors():
            set_tensor(t, np.full(t.ne[::-1], np.nan, np.float32))
    assert mem.seq_rm(0)
    assert (ctx.decode(PROMPT) == fresh).all()


def test_graphs_are_reused(name: str) -> None:
    seen: list[GraphResult] = []
    ctx = context(name)
    ctx.on_graph = lambda res, ubatch: seen.append(res)
    ctx.decode(PROMPT)
    for t in range(5):
        ctx.decode([t])
    assert len({id(res) for res in seen}) <= 3  # the recurrent row is zeroed in the first only
    assert ctx.n_reused >= 4
    ctx.clear()
    before = ctx.n_reused
    ctx.decode(PROMPT)
    assert ctx.n_reused == before + 1


def test_a_reused_graph_gives_what_a_new_one_would(name: str) -> None:
    ctx, other = context(name, n_seq_max=2), context(name, n_seq_max=2)
    for step, seq in enumerate([0, 1, 1, 0, 1, 0]):
        other.runner.graphs.clear()
        batch = Batch([step, step + 1], seq_ids=[[seq]] * 2)
        assert (ctx.decode(batch) == other.decode(batch)).all()
    assert ctx.n_reused > 0 == other.n_reused


class Interrupt:
    """Raises in the n-th graph from now on."""

    def __init__(self, ctx: Context, n: int) -> None:
        self.ctx, self.left = ctx, n
        ctx.on_graph = self

    def __call__(self, *args: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.ctx.on_graph = None
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_prompt_can_be_repeated(name: str, at: int, expected: Any) -> None:
    ctx = context(name, n_ubatch=8, n_seq_max=2)
    ctx.decode(Batch(PROMPT, seq_ids=[[1]] * len(PROMPT)))
    Interrupt(ctx, at)
    with pytest.raises(KeyboardInterrupt):
        ctx.decode(PROMPT)
    at_pos = ctx.memory.seq_pos_max(0) + 1
    assert at_pos == (8 * (at - 1) if name == "llama-dense" else 0)
    found = ctx.decode(PROMPT[at_pos:], logits="all")
    assert nmse(expected[name][at_pos:], found) < CLOSE
    alone = context(name)
    alone.decode(PROMPT)
    assert nmse(alone.decode([1]), ctx.decode(Batch([1], seq_ids=[[1]]))) < CLOSE


def test_a_context_is_one_threads_at_a_time(name: str, expected: Any) -> None:
    ctx, found = context(name), list[Exception]()

    def other() -> None:
        try:
            ctx.decode(PROMPT)
        except ContextError as e:
            found.append(e)

    def meanwhile(*_: Any) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    ctx.on_graph = meanwhile
    assert nmse(expected[name], ctx.decode(PROMPT, logits="all")) < CLOSE
    assert [*map(str, found)] and all(
        "already decoding, in another thread" in str(e) for e in found
    )
    ctx.on_graph = None
    ctx.clear()
    assert nmse(expected[name], ctx.decode(PROMPT, logits="all")) < CLOSE


def test_positions_stay_in_range(name: str) -> None:
    ctx = context(name)
    ctx.decode(PROMPT)
    for change, message in (
        (lambda: ctx.memory.seq_add(0, 0, -1, 2**40), "must be less than 2147483647"),
        (lambda: ctx.memory.seq_add(0, 0, -1, 2**31 - 17), "must be less than 2147483647"),
        (lambda: ctx.memory.seq_add(0, 99, -1, 2**40), "must be within 2147483647"),
        (lambda: ctx.memory.seq_div(0, 0, -1, 0), "d must be at least 1, got 0"),
        (lambda: ctx.memory.seq_div(0, 0, -1, -2), "d must be at least 1, got -2"),
    ):
        with pytest.raises(ContextError, match=message):
            change()
    if ctx.memory.recr is not None:
        with pytest.raises(ContextError, match="at position 16 and cannot move to -1"):
            ctx.memory.seq_add(0, 0, -1, -17)
    assert ctx.memory.seq_pos_max(0) == 16


@pytest.mark.parametrize("value", [1e-300, 1e39, -1, float("nan")])
def test_a_base_that_is_no_base(value: float) -> None:
    for option in ("rope_freq_base", "rope_freq_scale"):
        with pytest.raises(ContextError, match=f"{option} must be 0, or a number in"):
            context("llama-dense", **{option: value})


def test_what_is_refused_changes_nothing(name: str, expected: Any) -> None:
    ctx = context(name)
    ctx.decode(PROMPT[:10])
    for bad, message in (
        ([], "the batch is empty"),
        ([N_VOCAB], rf"tokens\[0\] must be in \[0, {N_VOCAB}\), got {N_VOCAB}"),
        (Batch([1], seq_ids=[[1]]), "larger n_seq_max"),
        (Batch([1], pos=[3]), r"ends at position 9 .* got 3"),
        (tokens(247), r"247 tokens does not fit .* 256 cells.* n_ctx"),
        (tokens(100_000), "100000 tokens does not fit"),
    ):
        with pytest.raises(ContextError, match=message):
            ctx.decode(bad)
    with pytest.raises(ContextError, match="logits must be"):
        ctx.decode([1], logits="some")  # type: ignore[arg-type]
    found = ctx.decode(PROMPT[10:], logits="all")
    assert nmse(expected[name][10:], found) < CLOSE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 0}, "n_ctx must be .*, got 0"),
        ({"n_ctx": -5}, "n_ctx must be .*, got -5"),
        ({"n_ubatch": 0}, "n_ubatch must be .*, got 0"),
        ({"n_seq_max": 0}, "n_seq_max must be .*, got 0"),
        ({"n_seq_max": 257}, r"n_seq_max must be an integer in \[1, 256\], got 257"),
        ({"n_threads": 0}, "n_threads must be .*, got 0"),
        ({"type_k": "f17"}, "type_k must be one of f32, .*, got 'f17'"),
        ({"type_v": "q8_0", "flash_attn": "off"}, "needs flash attention"),
        ({"flash_attn": "maybe"}, "flash_attn must be one of auto, on, off, .*got 'maybe'"),
        ({"mtp": True}, "load_mtp=True"),
        ({"forms": {"delta_net": "magic"}}, "delta_net must be auto or one .*, got 'magic'"),
        ({"forms": {"magic": "fused"}}, "unknown block 'magic'; known: delta_net"),
        ({"n_rs_seq": 32, "n_ubatch": 32}, "n_ubatch must be at least n_rs_seq .*, got 32"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ContextError, match=message):
        context("qwen35moe-moe", **options)


def test_a_context_too_large_for_the_machine() -> None:
    with pytest.raises(AllocError, match="KV cache needs"):
        context("llama-dense", n_ctx=2**33)


def test_sizes_are_rounded_up() -> None:
    cp = context("llama-dense", n_ctx=257, n_seq_max=2).cparams
    assert (cp.n_ctx, cp.n_ctx_seq) == (512, 256)
    assert context("llama-dense", n_ctx=None).n_ctx == 256  # what the model says


def test_embeddings(name: str, expected: Any) -> None:
    ctx = context(name, embeddings=True, n_ubatch=8)
    logits = ctx.decode(PROMPT)
    assert nmse(expected[name], logits) < CLOSE  # all tokens are outputs
    assert ctx.embd is not None
    assert ctx.embd.shape == (len(PROMPT), 64)
    assert np.linalg.matrix_rank(ctx.embd) == len(PROMPT)


def test_nextn_rows() -> None:
    ctx = context("qwen35moe-moe", n_ubatch=8)
    ctx.set_embeddings_nextn(True)
    ctx.decode(PROMPT)
    every = ctx.h_nextn
    assert every is not None
    assert every.shape == (len(PROMPT), 64)
    ctx.clear()
    ctx.set_embeddings_nextn(True, masked=True)
    ctx.decode(PROMPT)
    assert ctx.h_nextn is not None
    assert ctx.h_nextn.shape == (1, 64)
    assert nmse(every[-1:], ctx.h_nextn) < CLOSE


def test_memory_breakdown(name: str) -> None:
    ctx = context(name)
    use = ctx.memory_breakdown()
    assert use.keys() == {"ref"}
    assert use["ref"]["context"] == sum(ctx.memory.memory_breakdown().values())
    reserved = use["ref"]["compute"]
    ctx.decode(tokens(64))
    ctx.decode([1])
    assert ctx.memory_breakdown()["ref"]["compute"] == reserved


def test_watch_sees_every_node(name: str) -> None:
    seen: list[str] = []
    ctx = context(name, watch=lambda t: seen.append(t.name))
    ctx.decode([1, 2])
    assert seen[-1] == "result_output"
    assert len(seen) == len(ctx.runner.graphs[0][0].graph.nodes)


def rolled_back(n_rs_seq: int = 8) -> tuple[Context, list[int]]:
    """As llama.cpp's test-recurrent-state-rollback: n_rs_seq + 1 tokens, the last 3 taken back."""
    ctx = context("qwen35moe-moe", n_rs_seq=n_rs_seq)
    prompt = tokens(n_rs_seq + 1)
    ctx.decode(prompt)
    assert ctx.memory.seq_rm(0, len(prompt) - 3)
    return ctx, prompt


@pytest.mark.parametrize("fill", [0, 0x3E])
@pytest.mark.parametrize("dirty", [False, True])
def test_rollback_and_restore_are_exact(fill: int, dirty: bool) -> None:
    src, prompt = rolled_back()
    saved = state.save(src, 0)
    dst = context("qwen35moe-moe", n_rs_seq=8)
    assert dst.memory.recr is not None
    for _, buffer in (*dst.memory.caches["kv"].tensors.buffers, *dst.memory.recr.buffers):
        buffer.clear(fill)
    if dirty:
        dst.decode([(t + 1) % N_VOCAB for t in prompt])
        assert dst.memory.seq_rm(0, 6)
    state.load(dst, saved, 0)
    for t in prompt[-3:]:
        assert (src.decode([t]) == dst.decode([t])).all()


def test_rollback_equals_never_having_gone_on() -> None:
    """Two sequences, replayed in one batch over several ubatches."""
    options = {"n_rs_seq": 8, "n_seq_max": 2, "n_ubatch": 16, "kv_unified": False}
    roll, ref = context("qwen35moe-moe", **options), context("qwen35moe-moe", **options)
    prompts, replay = [tokens(19, 1), tokens(19, 2)], [tokens(40, 3), tokens(40, 4)]
    for s in range(2):
        roll.decode(Batch(prompts[s], seq_ids=[[s]] * 19), logits="none")
        ref.decode(Batch(prompts[s][:16], seq_ids=[[s]] * 16), logits="none")
        assert roll.memory.seq_rm(s, 16)
        assert not roll.memory.seq_rm(s, 15)  # one is pending
    batch = two(replay[0], replay[1])
    found, wanted = (c.decode(batch, logits="all") for c in (roll, ref))
    assert nmse(wanted, found) < CLOSE
    ref.decode(Batch([7], seq_ids=[[0]]))
    for t in tokens(4, 5):
        one = Batch([t], seq_ids=[[1]])
        assert nmse(ref.decode(one), roll.decode(one)) < CLOSE


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_state_round_trip(name: str, flash_attn: str, tmp_path: Path) -> None:
    options = {"flash_attn": flash_attn, "n_seq_max": 2}
    src, dst = context(name, **options), context(name, n_ctx=1024, **options)
    src.decode(PROMPT)
    src.decode(Batch([9, 8], seq_ids=[[1], [1]]))
    dst.decode(tokens(5, seed=8))
    size = state.save_file(src, tmp_path / "all", tokens=PROMPT)
    assert (tmp_path / "all").stat().st_size == size
    assert state.load_file(dst, tmp_path / "all") == PROMPT
    batch = Batch([4, 5], seq_ids=[[0], [1]], outputs=[True, True])
    assert (src.decode(batch) == dst.decode(batch)).all()
    state.load(dst, state.save(src, 0), 1)
    both = dst.decode(Batch([6, 6], seq_ids=[[0], [1]], outputs=[True, True]))
    assert nmse(both[:1], both[1:]) < CLOSE


def test_states_that_cannot_be_read() -> None:
    ctx = context("llama-dense")
    ctx.decode(PROMPT)
    whole, one = state.save(ctx), state.save(ctx, 0)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    for data, message in (
        (b"", "not a saved state: it has only 0 bytes"),
        (b"GGUF" + whole[4:], "starts with b'GGUF'"),
        (whole[:4] + b"\1\0\0\0" + whole[8:], "version must be 2, got 1"),
        (whole[:-5], "damaged or truncated"),
        (bytes(damaged), "damaged"),
        (one, "contains a state of one sequence, expected a state of all sequences"),
        (state.save(context("qwen35moe-moe")), r"another model \(qwen35moe, not llama\)"),
        (state.save(context("llama-dense", type_k="f32")), "kv f32 f16.* needs .*kv f16 f16"),
    ):
        with pytest.raises(ContextError, match=message):
            state.load(ctx, data)
    assert ctx.memory.seq_pos_max(0) == len(PROMPT) - 1
    ctx.decode([1])


def test_a_checkpoint_returns_to_an_earlier_state() -> None:
    ctx, ref = context("qwen35moe-moe"), context("qwen35moe-moe")
    ctx.decode(PROMPT)
    ref.decode(PROMPT)
    saved = state.save(ctx, 0, partial=True)
    ctx.decode(tokens(6, seed=9))
    assert not ctx.memory.seq_rm(0, len(PROMPT))
    state.load(ctx, saved, 0, partial=True)
    assert ctx.memory.seq_rm(0, len(PROMPT))
    assert (ctx.decode([3]) == ref.decode([3])).all()


@pytest.mark.parametrize("move", ["seq_add", "seq_div"])
def test_moved_keys_are_rotated(move: str) -> None:
    """In the first layer a key depends on its token and position only."""
    moved, other = (context("llama-dense", type_k="f32") for _ in range(2))
    if move == "seq_add":
        moved.decode([*PROMPT[:5], 1, 2, 3, 4])
        moved.memory.seq_rm(0, 0, 5)
        moved.memory.seq_add(0, 5, -1, -5)
        other.decode([1, 2, 3, 4, 5])
    else:
        moved.decode([1, 6, 2, 7, 3, 8, 4])
        moved.memory.seq_div(0, 0, -1, 2)
        other.decode([1, 2, 3, 4, 5])
    moved.decode([5])
    keys = []
    for ctx in (moved, other):
        kv = ctx.memory.caches["kv"]
        pos = kv.cells[0].pos.tolist()
        k = get_tensor(kv.tensors.k[0])[0, 0]
        keys.append(np.stack([k[pos.index(p)] for p in range(4)]))  # the first cell of each
    assert np.abs(keys[1]).max() > 0.5
    assert np.allclose(keys[0], keys[1], atol=1e-4)


def test_results_are_the_callers_own() -> None:
    ctx = context("llama-dense")
    first = ctx.decode(PROMPT)
    kept = first.copy()
    ctx.decode([1])
    assert (first == kept).all()
    first[:] = 0
    res = ctx.runner.graphs[0][0]
    assert res.t_logits is not None
    assert get_tensor(res.t_logits).any()

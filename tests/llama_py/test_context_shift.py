"""A full context goes on without its middle, where what it keeps can move."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.backend import tensor_bytes
from ggml_py.errors import ContextError
from ggml_ref.quants import dequantizer
from llama_py.context import Context
from llama_py.decoding.keep import shift
from llama_py.decoding.prefix import Prefix
from tests.support.commands import DEMO, tiny_model
from tests.support.live_models import live, made, model_of, nmse

N_CTX, PROMPT = 256, list(range(3, 23))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    with llama_py.Model(tiny_model(tmp_path_factory.mktemp("shift")), "cpu") as model:
        yield model


def tokens(pieces: Iterator[llama_py.Piece]) -> tuple[list[int], int]:
    found = list(pieces)
    return [p.token for p in found if p.token is not None], found[-1].n_discarded


def never_ends(ids: Any, logits: Any) -> Any:
    logits = logits.copy()
    logits[:3] = -np.inf
    return logits


@pytest.mark.parametrize("n_keep,kept", [(0, 0), (7, 7), (-1, 20)])
def test_half_of_what_is_not_kept_leaves(dense: llama_py.Model, n_keep: int, kept: int) -> None:
    """As if it were done by hand: removed, moved, and then the next token."""
    kept += int(dense.tokenizer.add_bos) if n_keep >= 0 else 0
    how: Any = {"context_shift": True, "n_keep": n_keep, "max_tokens": 300}
    ctx = dense.context(N_CTX)
    found, n_discarded = tokens(llama_py.stream(ctx, PROMPT, logits_processors=[never_ends], **how))
    n = (N_CTX - kept) // 2
    assert len(found) == 300 and n_discarded == n
    by_hand, ctx = list[int](), dense.context(N_CTX)
    logits = ctx.decode(PROMPT)[-1]
    for i in range(300):
        by_hand.append(int(np.argmax(never_ends(by_hand, logits))))
        if i + len(PROMPT) == N_CTX:
            ctx.memory.seq_rm(0, kept, kept + n)
            ctx.memory.seq_add(0, kept + n, N_CTX, -n)
        logits = ctx.decode([by_hand[-1]])[-1]
    assert found == by_hand


def test_without_it_a_full_context_is_the_end(dense: llama_py.Model) -> None:
    ctx = dense.context(N_CTX)
    pieces = list(llama_py.stream(ctx, PROMPT, logits_processors=[never_ends]))
    assert pieces[-1].finish_reason == "length" and pieces[-1].n_discarded == 0
    assert len(pieces) == N_CTX - len(PROMPT) + 1


def test_what_left_is_not_taken_for_what_is_there(dense: llama_py.Model) -> None:
    """A prompt that goes on from a shifted sequence reuses what was before the gap only."""
    ctx = dense.context(N_CTX)
    prefix = Prefix(ctx)
    ids = prefix.start(PROMPT)
    how: Any = {"context_shift": True, "n_keep": 9, "logits_processors": [never_ends]}
    found, n_discarded = tokens(llama_py.stream(ctx, ids, max_tokens=240, **how))
    assert n_discarded > 0
    prefix.add([*ids, *found])
    kept = 9 + int(dense.tokenizer.add_bos)
    assert prefix.tokens == PROMPT[:kept]
    again = [*PROMPT, *found[:30]]
    assert prefix.start(again) == again[kept:]


def test_a_model_goes_on_after_a_shift(dense: llama_py.Model) -> None:
    """Its next prompt is computed of what is really there."""
    how: Any = {"logits_processors": [never_ends], "temp": 0}
    n_train = dense.hparams.n_ctx_train
    prompt = (PROMPT * (n_train // len(PROMPT)))[: n_train - 8]
    before = list(dense.stream(prompt, max_tokens=20, context_shift=True, n_keep=4, **how))
    assert before[-1].n_discarded > 0
    said = [p.token for p in before if p.token is not None]
    following = [*prompt[: n_train // 2], *said]
    again = [p.token for p in dense.stream(following, max_tokens=5, **how)]
    fresh = llama_py.stream(dense.context(n_train), following, max_tokens=5, **how_of(how))
    assert again == [p.token for p in fresh]


def how_of(how: dict[str, Any]) -> dict[str, Any]:
    return {"logits_processors": how["logits_processors"]}


def test_an_interrupt_in_a_shift(dense: llama_py.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the tokens behind what is kept, though no piece told of a shift."""
    ctx = dense.context(N_CTX)
    prefix = Prefix(ctx)
    ids = prefix.start(PROMPT)
    how: Any = {"context_shift": True, "n_keep": 9, "logits_processors": [never_ends]}
    move = type(ctx.memory).seq_shift

    def interrupted(*args: Any) -> None:
        move(*args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(ctx.memory), "seq_shift", interrupted)
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(p.token for p in llama_py.stream(ctx, ids, **how))
    prefix.add([*ids, *found])
    assert prefix.tokens == PROMPT[: 9 + int(dense.tokenizer.add_bos)]


MODELS = [
    "llama-dense",
    "gemma3-dense",
    "qwen35-dense",
    "qwen3vl-dense",
    "deepseek2-moe",
    "mamba-dense",
    "step35-mtp",
    "deepseek4-moe",
]


@pytest.mark.parametrize("options", [{}, {"swa_full": True}])
@pytest.mark.parametrize("name", MODELS)
def test_a_context_shift_is_possible_exactly_if_it_says_so(
    name: str, options: dict[str, Any]
) -> None:
    """One that is not possible changes nothing."""
    ctx = Context(live(name), n_ctx=512, n_ubatch=32, **options)
    ctx.decode([i % 40 for i in range(100)])
    before = ctx.save_state()
    if ctx.memory.can_shift:
        assert shift(ctx, 0, 10) == 45
        assert ctx.memory.seq_pos_max(0) == 54
        assert np.isfinite(ctx.decode([5])).all()
    else:
        with pytest.raises(ContextError, match="context shift: "):
            shift(ctx, 0, 10)
        assert ctx.save_state() == before
    able = {"llama-dense", "deepseek2-moe"} | ({"gemma3-dense", "step35-mtp"} if options else set())
    assert ctx.memory.can_shift == (name in able)


@pytest.mark.parametrize("type_k", ["q8_0", "q4_0", "q5_1", "iq4_nl"])
@pytest.mark.parametrize("n_rot", [64, 32, 16])
def test_quantized_keys_move(type_k: str, n_rot: int) -> None:
    """In the first layer a key depends on its token and position only. Blocks of 32, and those that
    are rotated for a quantized cache, may be wider than what RoPE rotates."""
    sizes = {"attention__key_length": 64, "attention__value_length": 64}
    model = model_of(*made("phi2-dense", **sizes, rope__dimension_count=n_rot), "cpu")
    moved, other, still = (Context(model, n_ctx=256, type_k=type_k) for _ in range(3))
    moved.decode([*PROMPT, 1, 2, 3, 4])
    moved.memory.seq_shift(0, 0, len(PROMPT))
    other.decode([1, 2, 3, 4])
    still.decode([*PROMPT, 1, 2, 3, 4])
    keys = []
    for ctx, first in ((moved, 0), (other, 0), (still, len(PROMPT))):
        ctx.decode([5])
        kv = ctx.memory.caches["kv"]
        pos = kv.cells[0].pos.tolist()
        dequantize = dequantizer(kv.tensors.type_k)
        assert dequantize is not None
        blocks = tensor_bytes(kv.tensors.k[0]).reshape(-1, kv.tensors.type_k.type_size)
        rows = dequantize(blocks).reshape(kv.kv_size, -1)
        keys.append(np.stack([rows[pos.index(first + i)] for i in range(4)]))
    bound = 0.03 if type_k == "q8_0" else 0.3
    assert np.linalg.norm(keys[0] - keys[1]) < bound * np.linalg.norm(keys[1])
    assert np.linalg.norm(keys[2] - keys[1]) > bound * np.linalg.norm(keys[1])


def test_a_shift_takes_shared_cells_from_other_sequences() -> None:
    ctx = Context(live("llama-dense"), n_ctx=256, n_seq_max=2, kv_unified=True)
    ctx.decode([i % 40 for i in range(100)])
    ctx.memory.seq_cp(0, 1)
    before = ctx.decode([7], seq_id=1)
    ctx.memory.seq_rm(1, 100)
    assert shift(ctx, 0, 10) == 45
    assert ctx.memory.seq_pos_max(0) == 54 and ctx.memory.seq_pos_max(1) == 54
    again = ctx.decode([*(i % 40 for i in range(55, 100)), 7], seq_id=1)
    assert nmse(again, before) < 1e-6


def test_what_cannot_be_shifted_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with llama_py.load(DEMO) as model:
        ctx = model.context(N_CTX)
        assert not ctx.memory.can_shift
        (*_, last) = llama_py.stream(ctx, PROMPT, context_shift=True, max_tokens=3)
        assert last.finish_reason == "length" and "context shift is not possible" in caplog.text


def test_a_prompt_that_fills_the_context_cannot_be_kept_whole(dense: llama_py.Model) -> None:
    ctx = dense.context(N_CTX)
    how: Any = {"context_shift": True, "n_keep": -1, "logits_processors": [never_ends]}
    prompt = (PROMPT * 13)[:N_CTX]
    with pytest.raises(ContextError, match="n_keep = 256 of 256 tokens"):
        list(llama_py.stream(ctx, prompt, max_tokens=3, **how))

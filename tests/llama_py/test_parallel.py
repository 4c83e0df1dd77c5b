"""Sequences side by side on the CPU: what one gets does not depend on the others, on how its tokens
are cut into batches, or on what a slot held before.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from ggml_py.backend import set_tensor
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.memory.compressed import CompressedMemory
from llama_py.memory.specs import KVCacheSpec
from tests.support.graph_models import (
    CONTINUING,
    FLASH,
    attention_kinds,
    first_of_each,
    kept,
    memory_kinds,
)
from tests.support.live_models import live, nmse, spoil_keys, tokens

IDS = tokens(140)
LENGTHS = [1, 17, 64, 128]
EDGES = [1, 15, 16, 17, 63, 64, 65, 128]  # of tiles and chunks
CLOSE, CLOSE_F16 = 1e-11, 1e-7  # NMSE of logits: with F32 caches, with F16 ones
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}
UBATCHES = [7, 16, 64]
# Tokens that come alone, past windows and the edges of blocks; those between come together.
ALONE = [range(20), range(60, 68), range(124, 140)]
N_SEQS = 8
EACH_KIND = first_of_each(memory_kinds, CONTINUING)


def context(name: str, **options: Any) -> Context:
    return Context(live(name, "cpu"), **{"n_ctx": 256, "n_ubatch": 256, **options})


def interleaved(name: str, **options: Any) -> NDArray[np.float32]:
    """Logits of IDS as sequence 1 of four, in pieces of all of them; the others are shorter."""
    ctx = context(name, **{**options, "n_ctx": 1024, "n_seq_max": 4})
    seqs = {0: tokens(140, seed=5), 1: IDS, 2: tokens(70, seed=6), 3: tokens(101, seed=7)}
    rows = []
    for start in range(0, len(IDS), 50):
        parts = {s: ids[start : start + 50] for s, ids in seqs.items()}
        turns = [(s, part[i]) for i in range(50) for s, part in parts.items() if i < len(part)]
        batch = Batch([t for _, t in turns], seq_ids=[(s,) for s, _ in turns])
        found = ctx.decode(batch, logits="all")
        rows.append(found[[i for i, (s, _) in enumerate(turns) if s == 1]])
    return np.concatenate(rows)


def bound(name: str) -> float:
    """Of gemma3n the sparse activations tip over: llama.cpp itself, one batch against token by
    token: 3e-9."""
    return 1e-9 if name.startswith("gemma3n") else CLOSE


def check(name: str, close: float, options: dict[str, Any], lengths: list[int]) -> None:
    one = context(name, **options)
    whole = one.decode(IDS, logits="all")
    for n in lengths:
        one.clear()
        assert nmse(whole[:n], one.decode(IDS[:n], logits="all")) <= close, f"{n} tokens"
    for n_ubatch in UBATCHES:
        found = context(name, **{**options, "n_ubatch": n_ubatch}).decode(IDS, logits="all")
        assert nmse(whole, found) <= close, f"ubatches of {n_ubatch}"
    assert nmse(whole, interleaved(name, **options)) <= close, "interleaved"
    one.clear()
    rows, n = [], 0
    for alone in ALONE:
        if n < alone.start:
            rows.append(one.decode(IDS[n : alone.start], logits="all"))
        n, n_reused = alone.stop, one.n_reused
        rows += [one.decode([IDS[i]]) for i in alone]
        assert one.n_reused - n_reused >= len(alone) - 2, "graphs of one token"
    assert nmse(whole, np.concatenate(rows)) <= close, "token by token"


@pytest.mark.parametrize("name", CONTINUING)
def test_nothing_depends_on_how_tokens_are_fed(name: str) -> None:
    """The worst is 7e-12 (deepseek2, mamba 6e-12; the others below 4e-12). llama.cpp itself, one
    batch against token by token: 4e-11 with gemma3, whose GELU is a table of F16, else 3e-12."""
    check(name, bound(name), EXACT, EDGES if name in EACH_KIND else LENGTHS)


# without flash attention the weights of values are rounded, too
@pytest.mark.parametrize("name", first_of_each(attention_kinds, FLASH))
def test_nor_with_caches_that_round(name: str) -> None:
    """A rounding of F32 can put a cached value on the next F16: the worst is 1e-8 (deepseek2).
    llama.cpp itself, which rounds the queries of fewer than 64 tokens to F16: 1e-7 to 4e-6."""
    check(name, CLOSE_F16, {}, LENGTHS)


def answers(ctx: Context, prompt: list[int], n: int) -> set[tuple[int, ...]]:
    """The different greedy continuations of a prompt, decoded N_SEQS times side by side."""
    seqs = range(N_SEQS)
    seq_ids = [(s,) for s in seqs for _ in prompt]
    last = [i % len(prompt) == len(prompt) - 1 for i in range(len(seq_ids))]
    logits = ctx.decode(Batch(prompt * N_SEQS, seq_ids=seq_ids, outputs=last))
    found = []
    for _ in range(n):
        found.append([int(row.argmax()) for row in logits])
        batch = Batch(found[-1], seq_ids=[(s,) for s in seqs], outputs=[True] * N_SEQS)
        logits = ctx.decode(batch)
    return set(zip(*found, strict=True))


def spoil(ctx: Context) -> None:
    """Free all slots, whose recurrent states are then NaN."""
    mem = ctx.memory
    if isinstance(mem.recr, CompressedMemory):
        for s in range(N_SEQS):
            spoil_keys(mem.recr, s)
    elif mem.recr is not None:
        for t in mem.recr.all_tensors():
            set_tensor(t, np.full(t.ne[::-1], np.nan, np.float32))
    for s in range(N_SEQS):
        assert mem.seq_rm(s)


def check_parallel(ctx: Context, prompt: list[int], n: int) -> None:
    (first,) = answers(ctx, prompt, n)
    spoil(ctx)
    (again,) = answers(ctx, prompt, n)
    assert again == first
    spoil(ctx)
    ctx.decode(Batch(prompt[:3] * 2, seq_ids=[(s,) for s in (5, 2) for _ in range(3)]))
    for s in (5, 2):
        assert ctx.memory.seq_rm(s)
    assert answers(ctx, prompt, n) == {first}


@pytest.mark.parametrize("delta_net", ["fused", "chunked"])
def test_eight_identical_prompts_have_one_answer(delta_net: str) -> None:
    model = llama_py.load(str(resources.files("llama_py.data") / "demo.gguf"))
    ctx = model.context(N_SEQS * 256, n_seq_max=N_SEQS, forms={"delta_net": delta_net})
    prompt = model.tokenizer.tokenize("First Citizen:\nBefore we proceed any further, hear me")
    check_parallel(ctx, prompt, 24)
    (found,) = answers(model.context(N_SEQS * 256, n_seq_max=N_SEQS), prompt, 24)
    assert len(set(found)) > 5


# If a model keeps keys and values only, its blocks do not depend on the number of sequences. Three
# such models are enough: without windows, with windows, with latent keys.
MORE_KEPT = [n for n in CONTINUING if {type(what) for what in kept(n)} != {KVCacheSpec}]
PLAIN = ["llama-dense", "gemma3-dense", "deepseek2-moe"]


@pytest.mark.parametrize("name", [*PLAIN, *MORE_KEPT])
def test_eight_identical_prompts_of_an_architecture(name: str) -> None:
    check_parallel(context(name, n_ctx=N_SEQS * 256, n_seq_max=N_SEQS), IDS[:19], 5)

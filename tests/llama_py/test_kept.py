"""What layers keep in all its kinds: several in one layer, another layer's, keys of an indexer,
states beside windows. Any order of work gives the same, as do moves, copies and saved states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from llama_py.batch import Batch
from llama_py.context import Context, state
from tests.support.golden_models import path_of
from tests.support.live_models import nmse

NAMES = ["falcon-h1-plain", "lfm2-window", "rwkv6-fused", "gemma4-shared", "deepseek32-moe"]
EXACT = 1e-9
PROMPT, OTHER = (
    [int(x) % 64 for x in np.random.Philox(key=key).random_raw(n)] for key, n in ((3, 40), (5, 33))
)


def context(name: str, **options: Any) -> Context:
    plain = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}
    sizes = {"n_ctx": 1024, "n_ubatch": 64, "n_seq_max": 4}
    return llama_py.load(str(path_of(name)), "cpu").context(**{**plain, **sizes, **options})


def expected(name: str, ids: list[int]) -> NDArray[np.float32]:
    return context(name).decode(ids, "all")


def filled(name: str, **options: Any) -> Context:
    """PROMPT in sequence 0, OTHER in sequence 2."""
    ctx = context(name, **options)
    for seq, ids in ((0, PROMPT), (2, OTHER)):
        ctx.decode(Batch(ids, seq_ids=[(seq,)] * len(ids)), "none")
    return ctx


def step(ctx: Context, *seqs: int) -> NDArray[np.float32]:
    n = len(seqs)
    return ctx.decode(Batch([7] * n, seq_ids=[(s,) for s in seqs], outputs=[True] * n))


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_sequences_side_by_side(name: str, unified: bool) -> None:
    ctx, found = context(name, kv_unified=unified), ([], [])
    for i in range(0, len(OTHER), 5):
        parts = PROMPT[i : i + 5], OTHER[i : i + 5]
        n = len(parts[1])
        parts = parts[0][:n], parts[1]
        rows = ctx.decode(
            Batch(parts[0] + parts[1], seq_ids=[(0,)] * n + [(2,)] * n, outputs=[True] * 2 * n)
        )
        for rows_of, mine in zip(found, (rows[:n], rows[n:]), strict=True):
            rows_of.append(mine)
    for ids, rows_of in zip((PROMPT[: len(OTHER)], OTHER), found, strict=True):
        assert nmse(expected(name, ids), np.concatenate(rows_of)) < EXACT


@pytest.mark.parametrize("name", NAMES)
def test_states_are_saved_and_sequences_copied(name: str) -> None:
    ctx = filled(name)
    whole, single = state.save(ctx), state.save(ctx, 2)
    rows = step(ctx, 0, 2)
    other = context(name)
    other.decode(OTHER[:3])
    state.load(other, whole)
    other.memory.seq_cp(0, 3)
    assert nmse(rows, step(other, 0, 2)) < EXACT
    assert nmse(rows[0], step(other, 3)[0]) < EXACT
    state.load(other, single, 1)
    assert nmse(rows[1], step(other, 1)[0]) < EXACT


@pytest.mark.parametrize("back", [1, 3, 12])
@pytest.mark.parametrize("name", NAMES)
def test_going_back(name: str, back: int) -> None:
    """States go back as far as they are kept, if at all; the rest always."""
    ctx = context(name, n_rs_seq=3)
    ctx.decode(PROMPT[:26], "none")
    ctx.decode(PROMPT[26:30], "none")
    goes = ctx.memory.recr is None or back <= 3
    assert ctx.memory.seq_rm(0, 30 - back) == goes
    first = ctx.memory.seq_pos_max(0) + 1
    assert first == (30 - back if goes else 30)
    assert nmse(expected(name, PROMPT)[first:], ctx.decode(PROMPT[first:], "all")) < EXACT


@pytest.mark.parametrize("name", NAMES)
def test_interrupted(name: str) -> None:
    """What was not computed is not remembered; sequences beside it are."""
    ctx, n_graphs = context(name, n_ubatch=16), 0
    ctx.decode(Batch(OTHER, seq_ids=[(2,)] * len(OTHER)), "none")

    def interrupt(*_: object) -> None:
        nonlocal n_graphs
        n_graphs += 1
        if n_graphs == 2:
            raise KeyboardInterrupt

    ctx.on_graph = interrupt
    with pytest.raises(KeyboardInterrupt):
        ctx.decode(PROMPT, "none")
    ctx.on_graph = None
    first = ctx.memory.seq_pos_max(0) + 1
    assert first == (0 if ctx.memory.recr else 16)
    assert nmse(expected(name, PROMPT)[first:], ctx.decode(PROMPT[first:], "all")) < EXACT
    assert nmse(expected(name, [*OTHER, 7])[-1], step(ctx, 2)[0]) < EXACT


@pytest.mark.parametrize("name", ["falcon-h1-plain", "deepseek32-moe"])
def test_positions_move(name: str) -> None:
    """Only distances matter, so all may go on 50 positions later; keys of indexers are turned in
    their own space."""
    here, there = filled(name), filled(name)
    there.memory.seq_add(0, 0, -1, 50)
    assert there.memory.seq_pos_max(0) == here.memory.seq_pos_max(0) + 50
    assert nmse(step(here, 0), step(there, 0)) < EXACT


def test_indexer_by_its_nodes() -> None:
    rows = expected("deepseek32-moe", PROMPT)
    ctx = context("deepseek32-moe", forms={"lightning_indexer": "nodes"})
    assert nmse(rows, ctx.decode(PROMPT, "all")) < EXACT


def test_layers_that_keep_what_another_does_take_no_memory() -> None:
    ctx = context("gemma3n-shared")
    kept = sorted(il for kv in ctx.memory.caches.values() for il in kv.tensors.layers)
    assert kept == list(range(20))

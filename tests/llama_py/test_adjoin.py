"""Sequences that are computed together get adjacent caches: one ubatch, the same values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.memory.base import read_part
from llama_py.memory.group import MemoryGroup
from llama_py.serving import adjacent_caches
from llama_py.serving.adjacent_caches import AdjacentCaches
from tests.support.graph_models import CONTINUING, first_of_each, memory_kinds
from tests.support.live_models import live, nmse, tokens

N_SEQS = 5
CHOSEN = [0, 2, 4]
LENGTHS = [40, 3, 70, 9, 20]
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32"}
EACH_KIND = first_of_each(memory_kinds, CONTINUING)


def filled(name: str, **options: Any) -> Context:
    ctx = Context(live(name, "cpu"), n_ctx=128 * N_SEQS, n_seq_max=N_SEQS, **options)
    for s, n in enumerate(LENGTHS):
        ctx.decode(tokens(n, s), seq_id=s)
    return ctx


def step(ctx: Context, seqs: list[int], id: int) -> tuple[dict[int, Any], int]:
    """Decode a token of each sequence. -> logits by sequence, and the number of ubatches"""
    seen = list[int]()
    ctx.on_graph = lambda _, ubatch: seen.append(ubatch.n_tokens)
    order = sorted(seqs, key=lambda s: ctx.memory.streams[s] if ctx.memory.streams else s)
    pos = [ctx.memory.seq_pos_max(s) + 1 for s in order]
    one_each = Batch([id + s for s in order], pos=pos, seq_ids=[(s,) for s in order])
    rows = ctx.decode(one_each, logits="all")
    ctx.on_graph = None
    return dict(zip(order, rows, strict=True)), len(seen)


def swaps(memory: MemoryGroup, seqs: list[int]) -> list[tuple[int, int]]:
    """The fewest bytes of swaps that make these sequences adjacent."""
    ways = memory.ways_to_adjoin(seqs).values()
    return [] if memory.first_stream(seqs) >= 0 else min(ways, key=memory.swap_bytes, default=[])


def equal(found: dict[int, Any], expected: dict[int, Any]) -> bool:
    return all(nmse(expected[s], found[s]) <= 1e-9 for s in expected)


@pytest.mark.parametrize("flash", ["on", "off"])
@pytest.mark.parametrize("name", EACH_KIND)
def test_adjoined_sequences_have_the_same_logits(name: str, flash: str) -> None:
    plain, moved = (filled(name, flash_attn=flash, **EXACT) for _ in range(2))
    pairs = swaps(moved.memory, CHOSEN)
    moved.memory.adjoin(pairs)
    if pairs:
        assert swaps(moved.memory, CHOSEN) == []
    for id in (3, 8):
        expected, _ = step(plain, CHOSEN, id)
        found, n_ubatches = step(moved, CHOSEN, id)
        assert equal(found, expected)
        assert n_ubatches == 1 or not pairs
    # All sequences at once, after a copy, a removal and a state that is stored and restored.
    for ctx in (plain, moved):
        ctx.memory.seq_cp(2, 1)
        ctx.memory.seq_rm(4)
        ctx.decode(tokens(11, 9), seq_id=4)
    state = moved.save_state()
    moved.load_state(state)
    assert equal(step(moved, [*range(N_SEQS)], 5)[0], step(plain, [*range(N_SEQS)], 5)[0])


def test_the_smallest_caches_move() -> None:
    """Sequences 0, 2 and 4 have 40, 70 and 20 tokens; 1 and 3 have 3 and 9."""
    memory = filled("llama-dense").memory
    pairs = swaps(memory, CHOSEN)
    assert pairs == [(4, 1)]
    row = memory.swap_bytes(pairs) / (20 + 3)
    assert row == sum(t.nb[1] for t in memory.tensors())
    memory.adjoin(pairs)
    assert memory.streams == [0, 4, 2, 3, 1]
    assert swaps(memory, [0, 2, 4]) == swaps(memory, [3]) == []


def test_sequences_move_to_streams_that_have_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the moves have taken as long as a graph for their own streams."""
    memory = (ctx := filled("llama-dense")).memory
    caches = AdjacentCaches(ctx)
    caches.adjoin([0, 1])
    assert memory.streams == [0, 1, 2, 3, 4]  # the first graph of two sequences
    caches.adjoin([2, 3])
    assert memory.first_stream([2, 3]) == 0
    monkeypatch.setattr(adjacent_caches, "GRAPH", 1)
    assert memory.first_stream([0, 1]) == 2
    caches.adjoin([0, 1])
    assert memory.first_stream([0, 1]) == 2
    caches.adjoin([0, 2, 4])  # not adjacent: they move
    assert memory.first_stream([0, 2, 4]) >= 0


@pytest.mark.parametrize("name", ["deepseek4-moe", "glm5-next-moe", "llama-dense"])
def test_memories_without_separate_caches_stay(name: str) -> None:
    options = {"kv_unified": True} if name == "llama-dense" else {}
    assert swaps(filled(name, **options).memory, CHOSEN) == []


def test_a_removed_sequence_leaves_no_values() -> None:
    """Cells that become free after a move are zeroed in their new place (attention reads them)."""
    ctx = filled("llama-dense", flash_attn="off")
    ctx.memory.adjoin(swaps(ctx.memory, CHOSEN))
    for s in range(N_SEQS):
        ctx.memory.seq_rm(s)
    values = [t for t in ctx.memory.tensors() if t.name.startswith("cache_v")]
    assert values and not any(read_part(t, 0, t.nbytes).any() for t in values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["llama-dense", "gemma2-dense", "qwen35-dense", "mamba-dense"])
def test_moves_between_other_operations_change_nothing(name: str, seed: int) -> None:
    draw = random.Random(seed)
    plain, moved = (
        Context(live(name, "cpu"), n_ctx=128 * N_SEQS, n_seq_max=N_SEQS, **EXACT) for _ in range(2)
    )
    for id in range(30):
        seqs = draw.sample(range(N_SEQS), draw.randint(1, N_SEQS))
        match draw.choice(["decode", "decode", "remove", "copy", "adjoin", "restore"]):
            case "decode":
                assert equal(step(moved, seqs, id)[0], step(plain, seqs, id)[0])
            case "remove":
                for ctx in (plain, moved):
                    ctx.memory.seq_rm(seqs[0])
            case "copy" if len(seqs) > 1:
                for ctx in (plain, moved):
                    ctx.memory.seq_rm(seqs[1])
                    ctx.memory.seq_cp(seqs[0], seqs[1])
            case "adjoin":
                moved.memory.adjoin(swaps(moved.memory, seqs))
            case "restore":
                moved.load_state(moved.save_state())
        ends = [[ctx.memory.seq_pos_max(s) for s in range(N_SEQS)] for ctx in (plain, moved)]
        assert ends[0] == ends[1]

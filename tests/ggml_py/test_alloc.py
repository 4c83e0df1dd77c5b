"""Memory planning: nothing that is still needed is ever overwritten."""

from __future__ import annotations

import random

import pytest

from ggml_py import ops
from ggml_py.graph import Graph
from ggml_py.plan.alloc import plan_memory
from ggml_py.plan.arena import Arena, PackedArena
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32


def leaf(*ne: int) -> Tensor:
    x = Tensor(F32, ne)
    x.flags |= FLAG_INPUT
    return x


def place(y: Tensor) -> dict[int, int]:
    graph = Graph()
    graph.build_forward_expand(y)
    return {id(t): offset for t, _, offset in plan_memory(graph).placed}


def test_arena_reuses_and_merges() -> None:
    arena = Arena()
    a, b, c = arena.take(64), arena.take(64), arena.take(64)
    arena.give(a, 64)
    arena.give(c, 64)
    arena.give(b, 64)
    assert arena.free == [(0, 192)]
    assert arena.take(192) == 0
    assert arena.size == 192


def test_the_last_free_range_grows() -> None:
    arena = Arena()
    arena.give(arena.take(64), 64)
    assert arena.take(256) == 0
    assert arena.size == 256


def test_the_last_free_range_is_taken_last() -> None:
    """Though it fits better; what is left of it stays there."""
    arena = Arena()
    first, _, last = arena.take(256), arena.take(64), arena.take(128)
    arena.give(first, 256)
    arena.give(last, 128)
    assert arena.take(256) == first
    assert [arena.take(64), arena.take(64)] == [last, last + 64]
    arena.give(first, 256)
    arena.give(last, 128)
    assert arena.take(64) == first
    assert arena.size == 448


def test_gated_units_take_over_their_gate() -> None:
    gate, up = ops.scale(leaf(64), 2.0), ops.scale(leaf(64), 3.0)
    y = ops.swiglu_split(gate, up)
    where = place(y)
    assert where[id(y)] == where[id(gate)] != where[id(up)]
    both = ops.scale(leaf(128), 2.0)
    y = ops.swiglu(both)  # half as long
    where = place(y)
    assert where[id(y)] != where[id(both)]


def test_elementwise_runs_in_place() -> None:
    x = ops.mul_mat(leaf(8, 8), leaf(8, 8))
    y = ops.silu(x)
    where = place(y)
    assert where[id(x)] == where[id(y)]


def test_a_source_needed_later_is_kept() -> None:
    x = ops.mul_mat(leaf(8, 8), leaf(8, 8))
    y = ops.silu(x)
    where = place(ops.add(y, x))
    assert where[id(x)] != where[id(y)]


def test_of_two_sources_the_lower_one_is_taken_over() -> None:
    low, high = ops.mul_mat(leaf(8, 8), leaf(8, 8)), ops.mul_mat(leaf(8, 8), leaf(8, 8))
    graph = Graph()
    for t in (low, high):
        graph.build_forward_expand(t)
    y = ops.add(high, low)
    graph.build_forward_expand(y)
    where = {id(t): offset for t, _, offset in plan_memory(graph).placed}
    assert where[id(y)] == where[id(low)] < where[id(high)]


def test_outputs_are_never_taken_over() -> None:
    x = ops.mul_mat(leaf(8, 8), leaf(8, 8))
    x.flags |= FLAG_OUTPUT
    y = ops.silu(x)
    where = place(ops.neg(y))
    assert where[id(x)] != where[id(y)]


def test_empty_tensors_are_legal() -> None:
    empty = Tensor(F32, (8, 0))
    assert id(ops.neg(empty)) not in place(ops.neg(empty))


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_keep_live_bytes(seed: int) -> None:
    """Replay each plan and check that no node's bytes overlap those of a tensor still to be
    read.
    """
    rng = random.Random(seed)
    tensors = [leaf(rng.choice((4, 8, 16)), 4) for _ in range(3)]
    for _ in range(60):
        a = rng.choice(tensors)
        same = [t for t in tensors if t.ne == a.ne]
        make = rng.choice(("silu", "add", "cont", "view", "scale"))
        if make == "add":
            tensors.append(ops.add(a, rng.choice(same)))
        elif make == "view":
            tensors.append(ops.reshape(a, a.ne[1], a.ne[0]) if a.is_contiguous() else ops.cont(a))
        elif make == "scale":
            tensors.append(ops.scale(a, 2.0))
        else:
            tensors.append(getattr(ops, make)(a))
    graph = Graph()
    for t in tensors[-3:]:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    check_liveness(graph, {id(t): offset for t, _, offset in plan_memory(graph).placed})


def check_liveness(graph: Graph, where: dict[int, int]) -> None:
    root = {id(t): t if t.view_src is None else t.view_src for t in (*graph.nodes, *graph.leafs)}
    last = {}
    for i, t in enumerate(graph.nodes):
        for s in (t, *t.src):
            if s is not None:
                last[id(root[id(s)])] = len(graph.nodes) if t.flags & FLAG_OUTPUT and s is t else i
    for i, t in enumerate(graph.nodes):
        if t.view_src is not None:
            continue
        start = where[id(t)]
        for other in (*graph.leafs, *graph.nodes[:i]):
            if other.view_src is not None or id(other) not in last or last[id(other)] < i:
                continue
            dies_here = last[id(other)] == i and where[id(other)] == start
            apart = where[id(other)] >= start + t.nbytes or start >= where[id(other)] + other.nbytes
            assert apart or dies_here, f"{t} overwrites {other}"


@pytest.mark.parametrize("seed", range(10))
def test_packed_blocks_never_share_bytes_while_both_are_there(seed: int) -> None:
    rng = random.Random(seed)
    packed = PackedArena()
    there: list[tuple[int, int]] = []  # (size, block)
    beside: list[tuple[int, int]] = []
    for _ in range(200):
        if there and rng.random() < 0.5:
            size, block = there.pop(rng.randrange(len(there)))
            packed.give(block, size)
        else:
            size = rng.randrange(1, 5000)
            block = packed.take(size)
            beside += [(block, other) for _, other in there]
            there.append((size, block))
    offsets = packed.pack()
    ranges = [range(at, at + size) for at, (size, _, _) in zip(offsets, packed.blocks, strict=True)]
    assert all(a.stop <= b.start or b.stop <= a.start for a, b in both(ranges, beside))
    assert packed.size == max(r.stop for r in ranges)


def both(ranges: list[range], pairs: list[tuple[int, int]]) -> list[tuple[range, range]]:
    return [(ranges[i], ranges[j]) for i, j in pairs]


def test_what_does_not_fit_the_room_there_is_gets_packed() -> None:
    """Best fit leaves a's 64 bytes below b unused, where c does not fit."""
    a = ops.repeat_4d(leaf(1), 16, 1, 1, 1)
    b = ops.repeat_4d(a, 16, 1, 1, 1)
    c = ops.repeat_4d(b, 32, 1, 1, 1)
    graph = Graph()
    graph.build_forward_expand(c)
    loose, tight = plan_memory(graph), plan_memory(graph, room=(1,))
    assert (loose.sizes, tight.sizes) == ([320], [256])
    assert plan_memory(graph, room=loose.sizes).placed == loose.placed
    check_liveness(graph, {id(t): offset for t, _, offset in tight.placed})


def test_an_input_that_nobody_reads_gets_no_memory() -> None:
    """Tokens or embeddings: a graph has both, and computes one of them."""
    tokens, embeddings = leaf(64), leaf(4096)
    graph = Graph()
    graph.select([ops.neg(tokens), embeddings], 0)
    plan = plan_memory(graph)
    assert id(embeddings) not in {id(t) for t, _, _ in plan.placed}
    assert plan.sizes[0] < embeddings.nbytes
    wanted = leaf(4096)
    wanted.flags |= FLAG_OUTPUT
    graph.select([wanted], 0)
    assert id(wanted) in {id(t) for t, _, _ in plan_memory(graph).placed}

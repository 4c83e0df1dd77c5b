"""Memory planning: nothing that is still needed is ever overwritten."""

from __future__ import annotations

import random

import pytest

from ggml_py import ops
from ggml_py.alloc import Arena, plan_memory
from ggml_py.graph import Graph
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

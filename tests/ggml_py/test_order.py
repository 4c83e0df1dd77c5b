"""What a graph stores is stored early, and everything computes what it did."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan.alloc import plan_memory
from ggml_py.plan.order import stored_early
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import F16, I64
from tests.support.devices import TestDevice, given

N, CELLS, TOKENS = 32, 12, 6


def two_caches(
    old: bool = False, outputs: bool = True
) -> tuple[Graph, dict[str, Tensor], list[Tensor]]:
    """Values, then keys, are computed; then both are stored, keys first, as llama.cpp does.

    outputs  what is in the caches then is asked for
    old      between, somebody looks at what the cache of values had before
    """
    x = ops.neg(given(N, TOKENS, name="x"))
    index = Tensor(I64, (TOKENS,), name="index")
    caches = [given(N, CELLS, name=name) for name in ("keys", "values")]
    values = ops.reshape(ops.sqr(x), N, TOKENS)
    keys = ops.reshape(ops.sigmoid(ops.add(ops.scale(x, 2.0), ops.scale(x, 3.0))), N, TOKENS)
    graph = Graph()
    graph.build_forward_expand(values)
    graph.build_forward_expand(keys)
    seen = [ops.scale(caches[1], 3.0)] if old else []
    for t in seen:
        graph.build_forward_expand(t)
    for cache, t in zip(caches, (keys, values), strict=True):
        look = ops.view(t, (N, TOKENS), (N,), 0)
        graph.build_forward_expand(ops.set_rows(cache, look, index))
    both = [ops.scale(cache, 1.0) for cache in caches if outputs]
    for t in (*both, *seen):
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    return graph, {t.name: t for t in graph.leafs}, [*both, *seen]


def computed(graph: Graph) -> list[str]:
    return [t.op for t in graph.nodes if t.op not in ("RESHAPE", "VIEW")]


def test_values_are_stored_before_keys_are_computed() -> None:
    graph, _, _ = two_caches(outputs=False)
    before = list(graph.nodes)
    ordered = stored_early(graph, lambda _: 0)
    keys = ["SCALE", "SCALE", "ADD", "SIGMOID"]
    assert computed(graph) == ["NEG", "SQR", *keys, "SET_ROWS", "SET_ROWS"]
    assert computed(ordered) == ["NEG", "SQR", "SET_ROWS", *keys, "SET_ROWS"]
    assert graph.nodes == before
    assert sorted(map(id, ordered.nodes)) == sorted(map(id, before))
    place = {id(t): i for i, t in enumerate(ordered.nodes)}
    for t in ordered.nodes:
        made = [place[id(s)] for s in t.src if s is not None and id(s) in place]
        assert all(i < place[id(t)] for i in made), t
    assert plan_memory(ordered).sizes[0] < plan_memory(graph).sizes[0]


def with_queries(shared: bool = False) -> Graph:
    """Queries, then keys, are computed; then keys are stored.

    shared  somebody else reads the keys as well
    """
    x = ops.neg(given(N, TOKENS))
    queries = ops.sqr(ops.scale(x, 2.0))
    keys = ops.sigmoid(ops.scale(x, 3.0))
    stored = ops.set_rows(given(N, CELLS), ops.reshape(keys, N, TOKENS), Tensor(I64, (TOKENS,)))
    graph = Graph()
    for t in (queries, keys, stored, *([ops.add(keys, queries)] if shared else [])):
        graph.build_forward_expand(t)
    return graph


def test_what_only_a_cache_needs_is_computed_first() -> None:
    graph = with_queries()
    assert computed(graph) == ["NEG", "SCALE", "SQR", "SCALE", "SIGMOID", "SET_ROWS"]
    ordered = stored_early(graph, lambda _: 0)
    assert computed(ordered) == ["NEG", "SCALE", "SIGMOID", "SET_ROWS", "SCALE", "SQR"]
    order = [t for t in ordered.nodes if t.op == "SCALE"]
    assert [t.params[0] for t in order] == [3.0, 2.0]
    elsewhere = stored_early(graph, lambda t: int(t.op == "SIGMOID"))
    assert computed(elsewhere) == computed(graph)


def test_what_others_need_as_well_stays_in_its_place() -> None:
    graph = with_queries(shared=True)
    assert computed(stored_early(graph, lambda _: 0)) == computed(graph)


def test_nothing_is_stored_before_what_was_there_is_read() -> None:
    graph, _, _ = two_caches(old=True)
    ops_of = computed(stored_early(graph, lambda _: 0))
    keys, values = (i for i, op in enumerate(ops_of) if op == "SET_ROWS")
    assert ops_of[keys - 1] == "SIGMOID"
    assert ops_of[values - 1] == "SCALE"  # of the cache's old values


def test_nothing_moves_past_another_device() -> None:
    graph, _, _ = two_caches()
    ordered = stored_early(graph, lambda t: int(t.op == "SIGMOID"))
    assert computed(ordered)[:7] == computed(graph)[:7]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("refused", [(), ("SIGMOID",), ("SET_ROWS",)])
def test_results_are_the_same(old: bool, refused: tuple[str, ...]) -> None:
    results = []
    for watch in (None, lambda _: None):  # who watches sees the nodes in their own order
        graph, leafs, outputs = two_caches(old)
        devices = [TestDevice("some", *refused), TestDevice("all")]
        plan = Scheduler(devices, CompileOptions(), watch).plan(graph)
        rng = np.random.default_rng(1)
        for name in ("x", "keys", "values"):
            shape = leafs[name].ne[::-1]
            set_tensor(leafs[name], rng.standard_normal(shape).astype(np.float32))
        set_tensor(leafs["index"], np.array([3, 1, 7, 0, 11, 5], np.int64).reshape(1, 1, 1, -1))
        plan.run()
        results.append([get_tensor(t).copy() for t in outputs])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_states_are_read_before_new_ones_are_copied_there() -> None:
    """As recurrent layers do: the state of before is a look at the same memory."""
    cache = given(N, 4, name="cache")
    state = ops.view(cache, (N,), (), 0)
    graph = Graph()
    new = ops.sqr(ops.neg(given(N, name="x")))
    out = ops.add(new, state)
    graph.build_forward_expand(out)
    graph.build_forward_expand(ops.cpy(new, ops.view(cache, (N,), (), 0)))
    assert computed(stored_early(graph, lambda _: 0)) == ["NEG", "SQR", "ADD", "CPY"]


def test_caches_of_other_types_count_as_well() -> None:
    cache, x = Tensor(F16, (N, CELLS)), ops.neg(given(N, TOKENS))
    graph = Graph()
    graph.build_forward_expand(ops.sqr(ops.scale(x, 2.0)))
    graph.build_forward_expand(ops.cpy(x, ops.view(cache, (N, TOKENS), (N,), 0)))
    assert computed(stored_early(graph, lambda _: 0)) == ["NEG", "CPY", "SCALE", "SQR"]

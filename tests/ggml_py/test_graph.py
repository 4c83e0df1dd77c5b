"""Order and names of nodes follow ggml."""

from __future__ import annotations

import pytest

from ggml_py import ops
from ggml_py.graph import Graph
from ggml_py.tensor import FLAG_COMPUTE, Tensor, clip_name
from ggml_py.types import F32, I32


def leaf(name: str, *ne: int) -> Tensor:
    return Tensor(F32, ne, name=name)


def test_post_order_left_to_right() -> None:
    a, b = leaf("a", 4), leaf("b", 4)
    left, right = ops.sqr(a).set_name("left"), ops.sqrt(b).set_name("right")
    graph = Graph()
    graph.build_forward_expand(ops.add(left, right))
    assert [t.name for t in graph.nodes] == ["left", "right", "node_2"]
    assert [t.name for t in graph.leafs] == ["a", "b"]


def test_expanding_twice_adds_nothing() -> None:
    y = ops.neg(leaf("a", 4))
    graph = Graph()
    graph.build_forward_expand(y)
    graph.build_forward_expand(y)
    assert len(graph.nodes) == 1


def test_automatic_names_use_the_name_at_construction() -> None:
    a = leaf("cache", 8, 4)
    view = ops.view_1d(a, 8, 0)
    a.set_name("renamed")
    assert view.name == "cache (view)"
    assert ops.reshape(view, 4, 2).name == "cache (view) (reshaped)"
    assert ops.transpose(a).name == "renamed (transposed)"
    assert ops.cont(ops.permute(a, 1, 0, 2, 3)).name == "renamed (permuted) (cont)"
    unnamed = ops.neg(a)
    assert ops.cpy(unnamed, ops.view_2d(a, 8, 4, 32, 0)).name == "renamed (view) (copy of )"
    assert ops.view_1d(unnamed, 8, 0).name == " (view)"


def test_names_are_cut_as_ggml_cuts_them() -> None:
    assert len(clip_name("n" * 100)) == 63
    assert clip_name("ä" * 40) == "ä" * 31


def test_node_numbers_count_views() -> None:
    a = leaf("a", 4)
    y = ops.neg(ops.view_1d(a, 4, 0))
    graph = Graph()
    graph.build_forward_expand(y)
    assert y.name == "node_1"


def test_select_marks_only_the_chosen_alternative() -> None:
    one, two = ops.neg(leaf("a", 4)), ops.sqr(leaf("b", 4))
    graph = Graph()
    assert graph.select([one, two], 1) is two
    assert graph.compute_nodes() == [two]
    graph.build_forward_expand(ops.add(one, two))
    assert one.flags & FLAG_COMPUTE


def test_deep_graphs_need_no_recursion() -> None:
    y = leaf("a", 1)
    for _ in range(5000):
        y = ops.neg(y)
    graph = Graph()
    graph.build_forward_expand(y)
    assert len(graph.nodes) == 5000


def test_find() -> None:
    y = ops.get_rows(leaf("a", 4, 9), Tensor(I32, (2,), name="ids")).set_name("rows")
    graph = Graph()
    graph.build_forward_expand(y)
    assert graph.find("rows") is y
    assert graph.find("ids").type is I32
    with pytest.raises(KeyError):
        graph.find("nothing")

"""Patterns and what fits them; steps of several nodes in a plan, and their memory."""

from __future__ import annotations

import pytest

from ggml_py import ops
from ggml_py.fusion import FusedNodes, Fusions, in_place
from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.fusion.uses import Uses
from ggml_py.graph import Graph
from ggml_py.plan.alloc import plan_memory
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from tests.support.devices import given

NEG_SQR = Pattern("""
    a = NEG(x)
    b = SQR(a)
""")
SUMS = Pattern("""
    a = NEG(x)
    sum = ADD(~a, y)
    sum* = ADD(sum, y)
""")


def graph_of(*results: Tensor) -> Graph:
    graph = Graph()
    for t in results:
        graph.build_forward_expand(t)
    return graph


def fusions(*patterns: Pattern) -> Fusions[str]:
    """Steps that tell which pattern they are of."""
    found: Fusions[str] = Fusions()
    for pattern in patterns:
        found.fuse(pattern, over=in_place("x"))(lambda m, p=pattern: [str(p)])
    return found


def steps(graph: Graph, table: Fusions[str]) -> list[str]:
    """Ops of nodes, and patterns of steps, in the order in which they run."""
    run = table.steps(graph.compute_nodes(), Uses(graph.nodes))
    return [s.launch()[0] if isinstance(s, FusedNodes) else s.op for s in run]


def why_not(graph: Graph, pattern: Pattern, first: Tensor) -> str:
    nodes = graph.compute_nodes()
    return fusions(pattern).why_not(pattern, first, nodes, Uses(graph.nodes))


def test_two_nodes_are_one_step_in_the_place_of_the_last() -> None:
    a = ops.neg(given(4))
    graph = graph_of(a, ops.scale(given(4), 2.0), ops.sqr(a))
    assert steps(graph, fusions(NEG_SQR)) == ["SCALE", "NEG+SQR"]
    assert [t.op for t in graph.nodes] == ["NEG", "SCALE", "SQR"]
    assert why_not(graph, NEG_SQR, a) == ""


def test_a_value_read_twice_is_not_swallowed() -> None:
    a = ops.neg(given(4))
    graph = graph_of(ops.sqr(a), ops.scale(a, 2.0))
    assert steps(graph, fusions(NEG_SQR)) == ["NEG", "SQR", "SCALE"]
    assert "is also read by SCALE" in why_not(graph, NEG_SQR, a)


def test_a_value_that_goes_to_another_device_is_not_swallowed() -> None:
    a = ops.neg(given(4))
    graph = graph_of(ops.sqr(a))
    graph.nodes.append(Tensor(ne=(4,), src=(a,), name="other#a"))
    assert "is also read by NONE other#a" in why_not(graph, NEG_SQR, a)


@pytest.mark.parametrize("through_a_view", [False, True])
def test_an_output_is_not_swallowed(through_a_view: bool) -> None:
    a = ops.neg(given(4))
    wanted = ops.view(a, (2,), (), 1) if through_a_view else a
    wanted.flags |= FLAG_OUTPUT
    graph = graph_of(wanted, ops.sqr(a))
    assert steps(graph, fusions(NEG_SQR)) == ["NEG", "SQR"]
    assert "is an output" in why_not(graph, NEG_SQR, a)


def test_what_is_not_computed_reads_nothing() -> None:
    a = ops.neg(given(4))
    graph = Graph()
    graph.select([ops.sqr(a), ops.scale(a, 2.0)], 0)
    assert steps(graph, fusions(NEG_SQR)) == ["NEG+SQR"]


def test_a_view_between_only_where_the_pattern_says_so() -> None:
    def graph() -> Graph:
        return graph_of(ops.sqr(ops.reshape(ops.neg(given(4)), 2, 2)))

    through_a_view = Pattern("a = NEG(x)\nb = SQR(~a)")
    assert steps(graph(), fusions(NEG_SQR)) == ["NEG", "SQR"]
    assert steps(graph(), fusions(through_a_view)) == ["NEG+SQR"]


def test_an_operand_of_one_name_is_one_tensor() -> None:
    twice = Pattern("a = NEG(x)\nb = ADD(a, x)")
    x = given(4)
    assert steps(graph_of(ops.add(ops.neg(x), x)), fusions(twice)) == ["NEG+ADD"]
    assert steps(graph_of(ops.add(ops.neg(x), given(4))), fusions(twice)) == ["NEG", "ADD"]


def test_repeated_nodes_are_taken_as_far_as_they_go() -> None:
    x, y = given(4), given(4)
    total = ops.neg(x)
    for _ in range(4):
        total = ops.add(total, y)
    graph = graph_of(ops.add(total, given(4)))
    (step, last) = fusions(SUMS).steps(graph.compute_nodes(), Uses(graph.nodes))
    assert isinstance(step, FusedNodes)
    assert len(step.match.all_nodes("sum")) == 4
    assert step.match["sum"] is step.match.result is total
    assert isinstance(last, Tensor)


def test_a_condition_is_asked_and_its_reason_told() -> None:
    def short(m: Match) -> str:
        return "" if m["x"].ne[0] < 8 else f"needs fewer than 8; got {m['x'].ne[0]}"

    pattern = Pattern("a = NEG(x)\nb = SQR(a)", short)
    assert steps(graph_of(ops.sqr(ops.neg(given(4)))), fusions(pattern)) == ["NEG+SQR"]
    a = ops.neg(given(9))
    assert why_not(graph_of(ops.sqr(a)), pattern, a) == "needs fewer than 8; got 9"


def test_longer_patterns_are_tried_first_then_those_declared_first() -> None:
    longer = Pattern("a = NEG(x)\nb = SQR(a)\nc = SCALE(b)")
    other = Pattern("b = SQR(x)\nc = SCALE(b)")
    graph = graph_of(ops.scale(ops.sqr(ops.neg(given(4))), 2.0))
    assert steps(graph, fusions(NEG_SQR, longer)) == ["NEG+SQR+SCALE"]
    assert steps(graph, fusions(NEG_SQR, other)) == ["NEG+SQR", "SCALE"]
    assert steps(graph, fusions(other, NEG_SQR)) == ["NEG", "SQR+SCALE"]


def test_siblings_read_one_operand() -> None:
    pattern = Pattern("a = NEG(x)\nb = SQR(x)\nc = ADD(a, b)")
    x, y = given(4), given(4)
    assert steps(graph_of(ops.add(ops.neg(x), ops.sqr(x))), fusions(pattern)) == ["NEG+SQR+ADD"]
    apart = graph_of(ops.add(ops.neg(x), ops.sqr(y)))
    assert steps(apart, fusions(pattern)) == ["NEG", "SQR", "ADD"]


def test_an_operand_that_is_overwritten_before_the_step_runs() -> None:
    """NEG reads the cache before CPY writes to it, SQR comes after."""
    cache = given(8)
    a = ops.neg(ops.view(cache, (4,), (), 0))
    copy = ops.cpy(given(4), ops.view(cache, (4,), (), 2))
    graph = graph_of(a, copy, ops.sqr(a))
    assert steps(graph, fusions(NEG_SQR)) == ["NEG", "CPY", "SQR"]
    assert "overwrites an input of the step" in why_not(graph, NEG_SQR, a)
    apart = ops.cpy(given(4), ops.view(cache, (4,), (), 4))
    b = ops.neg(ops.view(cache, (4,), (), 0))
    assert steps(graph_of(b, apart, ops.sqr(b)), fusions(NEG_SQR)) == ["CPY", "NEG+SQR"]


KEPT = Pattern("""
    a = NEG(x)
    kept! = CPY(a, _)
    b = SQR(a)
""")


@pytest.mark.parametrize("start", [0, 4])
def test_what_a_step_writes_early_is_not_needed_between(start: int) -> None:
    """A node between reads what CPY has written, or something beside it."""
    cache = given(8)
    a = ops.neg(given(4))
    copy = ops.cpy(a, ops.view(cache, (4,), (), 0))
    reader = ops.scale(ops.view(cache, (4,), (), start), 2.0)
    graph = graph_of(copy, reader, ops.sqr(a))
    fused = ["SCALE", "NEG+CPY+SQR"] if start else ["NEG", "CPY", "SCALE", "SQR"]
    assert steps(graph, fusions(KEPT)) == fused


@pytest.mark.parametrize("n", [0, 1, 3])
def test_all_nodes_of_a_line_are_kept(n: int) -> None:
    every = Pattern("a = NEG(x)\nkept+ = CPY(a, _)\nb = SQR(a)")
    cache, a = given(16), ops.neg(given(4))
    copies = [ops.cpy(a, ops.view(cache, (4,), (), 4 * i)) for i in range(n)]
    graph = graph_of(*copies, ops.sqr(a))
    nodes = graph.compute_nodes()
    assert steps(graph, fusions(every)) == (["NEG+CPY+SQR"] if n else ["NEG", "SQR"])
    for step in fusions(every).steps(nodes, Uses(graph.nodes)) if n else []:
        assert isinstance(step, FusedNodes)
        assert step.match.kept == [*copies, nodes[-1]]
        assert step.match.all_nodes("kept") == tuple(copies)


def test_an_empty_node_between_does_not_disturb() -> None:
    cache = given(8)
    a = ops.neg(ops.view(cache, (4,), (), 0))
    nothing = ops.cpy(given(0), ops.view(cache, (0,), (), 2))
    assert steps(graph_of(a, nothing, ops.sqr(a)), fusions(NEG_SQR)) == ["CPY", "NEG+SQR"]


def test_a_result_over_an_operand_is_refused() -> None:
    cache = given(8)
    a = ops.neg(ops.view(cache, (4,), (), 0))
    copy = ops.cpy(a, ops.view(cache, (4,), (), 2))
    graph = graph_of(copy, ops.sqr(a))
    assert steps(graph, fusions(KEPT)) == ["NEG", "CPY", "SQR"]
    assert "is overwritten by a write to" in why_not(graph, KEPT, a)


def test_a_text_that_is_no_pattern() -> None:
    with pytest.raises(ValueError, match=r"`name = OP\(source, ...\)`, got 'a = NEG'"):
        Pattern("a = NEG")
    with pytest.raises(ValueError, match="b of a pattern must read one of the lines before"):
        Pattern("a = NEG(x)\nb = SQR(y)")
    with pytest.raises(ValueError, match="~x of a pattern must read one of the lines before"):
        Pattern("a = NEG(~x)")


def memory(graph: Graph, table: Fusions[str]) -> tuple[dict[int, int], int, list[FusedNodes[str]]]:
    """Offsets by id, the arena's size, and the steps of several nodes."""
    run = table.steps(graph.compute_nodes(), Uses(graph.nodes))
    fused = [s for s in run if isinstance(s, FusedNodes)]
    plan = plan_memory(graph, fused=fused)
    return {id(t): offset for t, _, offset in plan.placed}, plan.sizes[0], fused


def test_a_value_inside_has_no_memory() -> None:
    a = ops.neg(given(4))
    b = ops.sqr(a)
    graph = graph_of(b)
    where, _, _ = memory(graph, fusions(NEG_SQR))
    assert id(a) not in where and id(b) in where


def test_operands_live_until_the_step_runs() -> None:
    """Nothing between may have the memory of x, which unfused would be free after NEG."""
    x = ops.scale(given(64), 2.0)
    a = ops.neg(x)
    between = ops.scale(given(64), 3.0)
    b = ops.sqr(a)
    where, _, _ = memory(graph_of(a, between, b), fusions(NEG_SQR))
    assert where[id(between)] != where[id(x)]
    assert where[id(b)] == where[id(x)]  # declared so: `over`


def test_a_result_is_not_over_an_operand_that_others_need() -> None:
    x = ops.scale(given(64), 2.0)
    b = ops.sqr(ops.neg(x))
    where, _, _ = memory(graph_of(b, ops.add(b, x)), fusions(NEG_SQR))
    assert where[id(b)] != where[id(x)]


def test_scratch_is_planned_and_free_again_after_the_step() -> None:
    table: Fusions[str] = Fusions()
    table.fuse(NEG_SQR, scratch=lambda m: 4 * m["x"].nbytes)(lambda m: ["step"])
    x = ops.scale(given(64), 2.0)
    b = ops.sqr(ops.neg(x))
    last = ops.concat(b, b, 0)
    where, size, (step,) = memory(graph_of(last), table)
    scratch = step.match.scratch
    assert scratch is not None and scratch.nbytes == 1024
    start = where[id(scratch)]
    for t in (x, b):
        assert where[id(t)] + t.nbytes <= start or start + 1024 <= where[id(t)]
    leaf = last.src[0].src[0].src[0].src[0]
    assert size == leaf.nbytes + x.nbytes + b.nbytes + scratch.nbytes  # `last` lies in its place

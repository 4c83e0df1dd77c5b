"""An observer sees the same values whatever runs as one step and whatever shares memory.

Every fused step of a backend, with each of its nodes observed, is compared with a run in which
nothing is fused and every value has memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import Bytes, CompileOptions, Device, plan_steps
from ggml_py.fusion import FusedNodes, Fusions
from ggml_py.fusion.match import overlap
from ggml_py.fusion.pattern import Pattern
from ggml_py.fusion.uses import Uses
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.plan.taps import Taps, keeps_sources, split_taps
from ggml_py.tensor import FLAG_OUTPUT, FLAG_WEIGHT, Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Case, Init, Leaves
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.cases.rows import row_numbers
from llama_py_tools.test_backend_ops.run import draw_inputs, nmse, values
from tests.support import fused_graphs as graphs
from tests.support.devices import given
from tests.support.installed import devices_or_skip

Values = NDArray[Any]
Seen = dict[tuple[int, int], Values]  # by node and source; -1: the node's own
LARGE, MANY = 1 << 22, 1 << 16  # elements of a graph; of columns from which on steps overlap


class Computed(Leaves):
    """Inputs that are results of nodes, so that others may take over their memory."""

    def __call__(
        self, ne: tuple[int, ...], type: GGMLType = F32, init: Init | None = None
    ) -> Tensor:
        leaf = super().__call__(ne, type, init)
        return ops.scale(leaf, 1.0) if type is F32 else leaf

    def weight(self, ne: tuple[int, ...], type: GGMLType, init: Init | None = None) -> Tensor:
        leaf = super().__call__(ne, type, init)
        self.weights.append(leaf)
        return leaf


class Bench:
    """A case's graph whose weights are in a device's memory."""

    def __init__(self, case: Case, device: Device) -> None:
        self.device, self.new, self.graph = device, Computed(), Graph()
        self.graph.build_forward_expand(case.build(self.new, **case.args))
        self.seed = case.seed(0)
        self.nodes = self.graph.compute_nodes()

    def prepare(self, inputs: list[Bytes]) -> None:
        for leaf, data in zip(self.new.inits, inputs, strict=True):
            if leaf in self.new.weights:
                leaf.flags |= FLAG_WEIGHT
                leaf.buffer = self.device.alloc(leaf.nbytes)
                leaf.buffer.write(0, data)
                self.device.prepare_weight(leaf, [t.op for t in self.nodes if leaf in t.src])

    def steps(self) -> list[FusedNodes[Any]]:
        if any(map(self.device.why_not, self.nodes)):
            return []
        self.prepare([np.zeros(t.nbytes, np.uint8) for t in self.new.inits])
        steps = plan_steps(self.device, self.nodes, Uses(self.graph.nodes))
        return [s for s in steps if isinstance(s, FusedNodes)]

    def run(
        self,
        taps: Taps | None = None,
        fuse: bool = True,
        watch: Callable[[Tensor], None] | None = None,
    ) -> list[FusedNodes[Any]]:
        inputs = draw_inputs(self.new, self.seed)
        self.prepare(inputs)
        scheduler = Scheduler([self.device], CompileOptions(fuse=fuse), watch)
        plan = scheduler.plan(self.graph, taps=taps)
        for leaf, data in zip(self.new.inits, inputs, strict=True):
            if leaf not in self.new.weights and leaf.buffer is not None:
                leaf.buffer.write(leaf.offset, data)
        plan.run()
        return [s for split in plan.splits for s in split.steps if isinstance(s, FusedNodes)]


def short_conv(in_cache: bool) -> Callable[[Leaves], Tensor]:
    """The convolution's last inputs go to a cache, from which one token has its first ones."""

    def build(new: Leaves) -> Tensor:
        n, n_seqs = (1, 1) if in_cache else (5, 2)
        cache, ids = Leaves.__call__(new, (3 * 64, 6)), new((1,), I32, row_numbers(1))
        state = ops.get_rows(cache, ids) if in_cache else new((3 * 64, n_seqs))
        joined = ops.concat(
            ops.reshape(state, 3, 64, n_seqs), ops.transpose(new((64, n, n_seqs))), 0
        )
        kept = ops.view(cache, (3 * 64, n_seqs), (3 * 64,), 0 if in_cache else 3 * 3 * 64)
        stored = ops.cpy(ops.view(joined, (3, 64, n_seqs), offset=n), kept)
        return ops.add1(ops.silu(ops.ssm_conv(joined, new((4, 64)))), ops.sum(stored))

    return build


def product_to_rows(new: Leaves) -> Tensor:
    x, cache = new((64, 3)), new((32, 8))
    return graphs.product_to_rows(new((64, 32)), x, new((3,)), cache, F16)


def gated(op: Callable[..., Tensor], unit: str) -> Callable[[Leaves], Tensor]:
    def build(new: Leaves) -> Tensor:
        kind, expert = BY_NAME["q8_0"], () if op is ops.mul_mat else (3,)
        x, scores = new((256, 1, 4) if expert else (256, 4)), new((3, 4))
        ids = (ops.argsort_top_k(scores, 2),) if expert else ()
        up, gate = (op(new.weight((256, 64, *expert), kind), x, *ids) for _ in range(2))
        glu: Callable[[Tensor, Tensor], Tensor] = getattr(ops, unit)
        return glu(gate, up)

    return build


def rotated(norm: bool, store: bool) -> Callable[[Leaves], Tensor]:
    """With factors of the frequencies."""

    def build(new: Leaves) -> Tensor:
        x, tokens = new((64, 4, 5)), new((5,))
        x = graphs.norm_and_weight(x, new((64,))) if norm else x
        y = graphs.turned(x, tokens, new((16,)))
        return graphs.heads_to_rows(y, tokens, new((256, 8))) if store else y

    return build


def attention(new: Leaves) -> Tensor:
    """Many tokens, whose queries lie as a model has them."""
    q = ops.permute(new((64, 4, 96)), 0, 2, 1, 3)
    k, v = (new((64, 256, 4), F16) for _ in "kv")
    return ops.flash_attn_ext(q, k, v, None, 0.125)


MORE = [
    Case("more", attention, {}),
    *(Case("more", short_conv(in_cache), {}) for in_cache in (False, True)),
    Case("more", product_to_rows, {}),
    Case("more", gated(ops.mul_mat, "reglu_split"), {}),
    Case("more", gated(ops.mul_mat_id, "reglu_split"), {}),
    *(Case("more", rotated(norm, store), {}) for norm, store in ((0, 1), (1, 0), (1, 1))),
]


Key = tuple[int, frozenset[str]]  # launcher, ops
SINGLE = ("MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT")  # nodes that are fused steps alone


def key_of(step: FusedNodes[Any]) -> Key:
    return id(step.launcher), frozenset(t.op for t in step.match.nodes)


@cache
def cases_of(backend: str) -> tuple[Device, list[Case]]:
    """The backend's device, and for each of its fused steps the smallest case that has it."""
    device = devices_or_skip(backend)[0]
    fusions: Fusions[Any] = device.fusions  # type: ignore[attr-defined]
    lacking = {
        (id(r.launcher), frozenset(line.op for line in r.pattern.lines))
        for r in fusions.rules
        if isinstance(r.pattern, Pattern)
    }
    chosen = list[Case]()
    for case in (*MORE, *sorted(filter(is_candidate, all_cases()), key=size_of)):
        found = {key_of(step) for step in Bench(case, device).steps()} if lacking else set()
        if found & lacking or case in MORE:
            chosen.append(case)
        lacking -= found
    assert not lacking, f"no case has these steps of {backend}: {[ops for _, ops in lacking]}"
    return device, chosen


def is_candidate(case: Case) -> bool:
    if case.perf or not (case.fused or case.op in SINGLE):
        return False
    return (MANY if case.op in SINGLE else 0) <= size_of(case) <= LARGE


def size_of(case: Case) -> int:
    return sum(t.n_elements for t in case.graph()[0].nodes)


def expected(case: Case, device: Device) -> Seen:
    """Values of all nodes and of their sources, each in memory of its own, nothing fused."""
    bench, seen = Bench(case, device), Seen()
    for t in bench.graph.nodes:
        t.flags |= FLAG_OUTPUT
    bench.run(Taps(lambda t: look(bench, t, seen), stops=bench.nodes), fuse=False)
    return seen


def look(bench: Bench, t: Tensor, seen: Seen, sources: bool = True) -> None:
    i = next(i for i, node in enumerate(bench.nodes) if node is t)
    seen[i, -1] = values(t)
    for k, s in enumerate(t.src):
        if sources and s is not None and s.layout == "":
            seen[i, k] = values(s)


def look_at_computed(bench: Bench, seen: Seen, t: Tensor) -> None:
    if t in bench.nodes:
        look(bench, t, seen)


# of a graph's nodes, the taps that an observer of node `i` has
OBSERVERS: dict[str, Callable[[Bench, int, Seen], Taps]] = {
    "reads": lambda b, i, seen: Taps(lambda t: look(b, t, seen, False), read=[b.nodes[i]]),
    "stops": lambda b, i, seen: Taps(lambda t: look(b, t, seen, False), stops=[b.nodes[i]]),
    "sources": lambda b, i, seen: Taps(lambda t: look(b, t, seen), sources=[b.nodes[i]]),
}


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("backend", ["cpu", "opencl"])
def test_every_node_of_every_fused_step(backend: str, observer: str) -> None:
    device, cases = cases_of(backend)
    for case in cases:
        want = expected(case, device)
        for i, node in enumerate(Bench(case, device).nodes):
            if observer == "sources" and not keeps_sources(node):
                continue
            bench, seen = Bench(case, device), Seen()
            bench.run(OBSERVERS[observer](bench, i, seen))
            assert (i, -1) in seen
            for key, value in seen.items():
                assert nmse(want[key], value) < 1e-5, f"{case}: {bench.nodes[i]}, source {key[1]}"


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
def test_a_watching_scheduler_sees_the_sources_of_every_node(backend: str) -> None:
    device, cases = cases_of(backend)
    for case in cases:
        want, bench, seen = expected(case, device), Bench(case, device), Seen()
        bench.run(watch=partial(look_at_computed, bench, seen))
        for (i, k), value in seen.items():
            if k < 0 or keeps_sources(bench.nodes[i]):
                assert nmse(want[i, k], value) < 1e-5, f"{case}: {bench.nodes[i]}, source {k}"


def test_steps_lie_over_sources_that_nobody_observes() -> None:
    """Otherwise the tests above could not fail."""
    device, cases = cases_of("cpu")
    over = {
        s.match.result.op
        for case in cases
        for s in Bench(case, device).run()
        if any(overlap(s.match.result, x) for x in s.match.operands)
    }
    assert over >= {"MUL_MAT", "MUL_MAT_ID", "SWIGLU", "GEGLU", "FLASH_ATTN_EXT", "SCALE"}


def test_sources_that_the_op_changes_are_refused() -> None:
    x = given(4, 4)
    y = ops.scale(ops.neg(x), 2.0, inplace=True)
    graph = Graph()
    graph.build_forward_expand(y)
    with pytest.raises(ValueError, match=r"SCALE .* overwrites its source; read the source before"):
        split_taps(Taps(lambda _: None, sources=[y]), graph)


def test_a_value_that_an_op_changes_later_is_read_before() -> None:
    """REDUCE gives each of its sources the sum."""
    parts = [ops.neg(given(4, name=f"x{i}")) for i in range(2)]
    y = ops.all_reduce(parts)
    graph = Graph()
    graph.build_forward_expand(y)
    taps = split_taps(Taps(lambda _: None, read=[*parts, y]), graph)
    assert taps.stops == parts and taps.read == [y]

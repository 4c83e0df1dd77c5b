"""Merged steps give what the single nodes give, and merge only where that is safe."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from ggml_py import ops
from ggml_py.backend import CompileOptions, get_tensor, registry, set_tensor
from ggml_py.fusion.match import overlap
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, FLAG_WEIGHT, Tensor
from ggml_py.types import BY_NAME, F16
from llama_py.batch import Batch
from llama_py.context import Context
from tests.llama_py.test_rollback import EACH
from tests.support import fused_graphs as graphs
from tests.support.devices import given
from tests.support.fused_graphs import Build, Shapes, error
from tests.support.live_models import live

CASES: dict[str, tuple[Build, Shapes, list[str]]] = {
    "norm and weight": (
        graphs.norm_and_weight, {"x": (33, 5), "w": (33,)}, ["NEG", "RMS_NORM+MUL"]
    ),
    "norm and factor": (graphs.norm_and_factor, {"x": (64, 7)}, ["RMS_NORM+SCALE"]),
    "sum of experts": (graphs.expert_sum, {"x": (50, 4, 9), "w": (1, 4, 9)}, ["SCALE", "MUL+ADD"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_merged(name: str) -> None:
    build, shapes, steps = CASES[name]
    assert error(build, shapes, registry.device("cpu"), steps) <= 1e-6


def test_a_result_with_two_readers_stays() -> None:
    shapes: Shapes = {"x": (32, 3), "w": (32,)}
    steps = ["RMS_NORM", "MUL", "ADD"]
    assert error(graphs.norm_read_twice, shapes, registry.device("cpu"), steps) == 0


def test_who_watches_sees_every_node() -> None:
    """Nothing is merged then, whatever the options are."""
    seen: dict[str, np.ndarray] = {}

    def watch(t: Tensor) -> None:
        seen[t.op] = get_tensor(t)

    x = given(64, 7)
    y = graphs.norm_and_factor(x)
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([registry.device("cpu")], CompileOptions(fuse=True), watch).plan(graph)
    set_tensor(x, np.ones(x.ne[::-1], np.float32))
    plan.run()
    assert list(seen) == [t.op for t in graph.nodes] == ["RMS_NORM", "SCALE"]
    assert np.allclose(seen["RMS_NORM"], 1, atol=1e-4)
    assert np.allclose(seen["SCALE"], 0.25, atol=1e-4)


def gated(n: int, kind: str = "q8_0", again: bool = False) -> tuple[list[str], int]:
    """The steps of a gated unit of n columns, and bytes of the compute buffer."""
    device = registry.device("cpu")
    weights = [Tensor(BY_NAME[kind], (256, 1024), name=f"w{i}") for i in range(2)]
    for w in weights:
        w.flags |= FLAG_WEIGHT
        w.buffer = device.alloc(w.nbytes)
        device.prepare_weight(w, ["MUL_MAT"])
    x = ops.neg(given(256, n))
    up, gate = (ops.mul_mat(w, x) for w in weights)
    y = ops.swiglu_split(gate, up)
    graph = Graph()
    graph.build_forward_expand(ops.add(y, gate) if again else ops.neg(y))
    scheduler = Scheduler([device], CompileOptions(fuse=True))
    plan = scheduler.plan(graph)
    found = [getattr(s, "match", s) for s in plan.splits[0].steps]
    return [str(getattr(s, "op", "step")) for s in found], scheduler.compute_sizes()[0]


@pytest.mark.parametrize("n", [40, 700])  # some CPUs multiply many otherwise
def test_a_gate_of_many_columns_is_never_in_memory(n: int) -> None:
    steps, size = gated(n)
    assert steps == ["NEG", "step", "NEG"] if n > 256 else ["NEG", "MUL_MAT", "step", "NEG"]
    apart, larger = gated(n, "bf16")  # never in panels
    assert "SWIGLU" in apart and larger >= size + n * 4096


def gated_values(fuse: bool, n: int, kind: str, more: bool, experts: bool) -> NDArray[Any]:
    """A gated unit; `more`: the values are wanted as well, so that it cannot lie over them."""
    device, rng = registry.device("cpu"), np.random.default_rng(1)
    op = "MUL_MAT_ID" if experts else "MUL_MAT"
    weights = [Tensor(BY_NAME[kind], (256, 100, 3) if experts else (256, 100)) for _ in range(2)]
    for w in weights:
        w.flags |= FLAG_WEIGHT
        w.buffer = device.alloc(w.nbytes)
        rows = rng.standard_normal((w.n_rows, 256)).astype(np.float32)
        blocks = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind.upper()])
        set_tensor(w, blocks.reshape(*w.ne[3:0:-1], -1))
        device.prepare_weight(w, [op])
    x, scores = given(256, 1, n) if experts else given(256, n), given(3, n)
    y = ops.neg(x)
    if experts:
        ids = ops.argsort_top_k(scores, 2)
        up, gate = (ops.mul_mat_id(w, y, ids) for w in weights)
    else:
        up, gate = (ops.mul_mat(w, y) for w in weights)
    result = ops.swiglu_split(gate, up)
    result = ops.add(result, up) if more else ops.neg(result)
    result.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(result)
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    for t in (x, scores) if experts else (x,):
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    steps = [graphs.name(s) for s in plan.splits[0].steps]
    assert (f"{op}+SWIGLU" in steps) == fuse
    if fuse and not (experts or more):  # of many columns the result lies over them, too
        (step,) = (s for s in plan.splits[0].steps if graphs.name(s) == f"{op}+SWIGLU")
        (made,) = step.match.kept
        assert overlap(made, y) == (n > 256)
    return run_again(plan, result)


def run_again(plan: Plan, result: Tensor) -> NDArray[Any]:
    """Its value, which is the same when the program is laid out for many runs."""
    found = get_tensor(result).copy()
    plan.splits[0].program.settle()
    plan.run()
    np.testing.assert_array_equal(get_tensor(result), found)
    return found


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("n", [40, 130, 300])
def test_gated_units_have_the_same_values(n: int, kind: str, more: bool, experts: bool) -> None:
    merged, plain = (gated_values(fuse, n, kind, more, experts) for fuse in (True, False))
    np.testing.assert_array_equal(merged, plain)


def product_over(
    fuse: bool, kind: str, repack: bool, experts: bool, again: bool
) -> tuple[NDArray[Any], bool]:
    """The values of a product of many columns, and whether it lies over some of those.

    again  somebody else wants the columns
    """
    device, rng = registry.device("cpu"), np.random.default_rng(1)
    n, op = 300, "MUL_MAT_ID" if experts else "MUL_MAT"
    w = Tensor(BY_NAME[kind], (256, 100, 3) if experts else (256, 100))
    w.flags |= FLAG_WEIGHT
    w.buffer = device.alloc(w.nbytes)
    rows = rng.standard_normal((w.n_rows, 256)).astype(np.float32)
    blocks = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind.upper()])
    set_tensor(w, blocks.reshape(*w.ne[3:0:-1], -1))
    if repack:
        device.prepare_weight(w, [op])
    x, scores = given(256, 1, n) if experts else given(256, n), given(3, n)
    columns = ops.neg(x)
    ids = [ops.argsort_top_k(scores, 2)] if experts else []
    product = ops.mul_mat_id(w, columns, *ids) if experts else ops.mul_mat(w, columns)
    result = ops.neg(product)
    graph = Graph()
    graph.build_forward_expand(result)
    if again:
        graph.build_forward_expand(ops.sqr(columns))
        graph.nodes[-1].flags |= FLAG_OUTPUT
    result.flags |= FLAG_OUTPUT
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    for t in (x, scores) if experts else (x,):
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    return run_again(plan, result), overlap(product, columns)


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("repack", [False, True])
@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_a_product_of_many_columns_may_lie_over_them(
    kind: str, repack: bool, experts: bool
) -> None:
    over, shared = product_over(True, kind, repack, experts, False)
    plain, apart = product_over(False, kind, repack, experts, False)
    assert (shared, apart) == (True, False)
    np.testing.assert_array_equal(over, plain)
    wanted, shared = product_over(True, kind, repack, experts, True)
    assert not shared
    np.testing.assert_array_equal(wanted, plain)


def test_a_product_that_reads_columns_as_they_are_lies_beside_them() -> None:
    columns = ops.neg(given(1 << 15, 3))
    product = ops.mul_mat(given(1 << 15, 20), columns)
    graph = Graph()
    graph.build_forward_expand(ops.neg(product))
    Scheduler([registry.device("cpu")], CompileOptions(fuse=True)).plan(graph)
    assert not overlap(product, columns)


@pytest.mark.parametrize("how", [{"n": 1}, {"n": 9, "again": True}, {"n": 9, "kind": "bf16"}])
def test_a_gate_that_is_wanted_or_made_otherwise_stays(how: dict[str, Any]) -> None:
    assert "SWIGLU" in gated(**how)[0]


HEADS, WIDTH, CELLS = 4, 32, 600


def attention(fuse: bool, n_tokens: int, sinks: bool, again: bool) -> tuple[NDArray[Any], int, str]:
    """The result, bytes of the compute buffer, and what the step is.

    again   somebody else wants the queries
    """
    q, k, v = given(WIDTH * HEADS, n_tokens), given(WIDTH, CELLS, 2), given(WIDTH, CELLS, 2)
    mask, sink = given(CELLS, n_tokens), given(HEADS)
    made = ops.sqr(q)
    queries = ops.permute(ops.reshape(made, WIDTH, HEADS, n_tokens), 0, 2, 1, 3)
    y = ops.flash_attn_ext(
        queries, *(ops.cast(t, F16) for t in (k, v, mask)), 0.1, sinks=sink if sinks else None
    )
    graph = Graph()
    graph.build_forward_expand(ops.neg(y))
    result = graph.nodes[-1]
    if again:
        graph.build_forward_expand(ops.neg(made))
        graph.nodes[-1].flags |= FLAG_OUTPUT
    result.flags |= FLAG_OUTPUT
    scheduler = Scheduler([registry.device("cpu")], CompileOptions(fuse=fuse))
    plan = scheduler.plan(graph)
    rng = np.random.default_rng(1)
    for t in (q, k, v, mask, sink)[: 5 if sinks else 4]:
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    (step,) = [s for s in plan.splits[0].steps if graphs.name(s) == "FLASH_ATTN_EXT"]
    return get_tensor(result).copy(), scheduler.compute_sizes()[0], type(step).__name__


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("n_tokens", [64, 131])
def test_attention_of_many_tokens_lies_over_its_queries(n_tokens: int, sinks: bool) -> None:
    over, size, step = attention(True, n_tokens, sinks, False)
    plain, larger, node = attention(False, n_tokens, sinks, False)
    assert (step, node) == ("FusedNodes", "Tensor")
    assert larger - size >= 4 * WIDTH * HEADS * n_tokens
    np.testing.assert_array_equal(over, plain)
    both, _, _ = attention(True, n_tokens, sinks, True)
    np.testing.assert_array_equal(both, plain)


def test_attention_of_a_token_stays_beside_its_queries() -> None:
    assert attention(True, 1, False, False)[2] == "Tensor"


def short_conv(s: Tensor, x: Tensor, w: Tensor, cache: Tensor, rows: bool) -> tuple[Tensor, Tensor]:
    """The result, and the last inputs, of a sequence in one row or in one for each channel."""
    joined = ops.concat(s, ops.transpose(ops.neg(x)), 0)
    n, n_channels, n_seqs, _ = s.ne
    window = ops.view_3d(joined, n, n_channels, n_seqs, joined.nb[1], joined.nb[2], 4 * x.ne[1])
    size, stride = n * n_channels, cache.nb[1]
    if rows:
        to = ops.view_2d(cache, size, n_seqs, stride, 4 * size)
    else:
        to = ops.view_3d(cache, n, n_channels, n_seqs, 4 * n, stride, 4 * size)
    kept = ops.cpy(window, to)
    return ops.silu(ops.reshape(ops.ssm_conv(joined, w), *x.ne[:3])), kept


def convolved(fuse: bool, shape: tuple[int, int, int, int], rows: bool) -> list[np.ndarray]:
    n_channels, n_tokens, n_seqs, d_conv = shape
    size = (d_conv - 1) * n_channels
    leafs = [
        given(d_conv - 1, n_channels, n_seqs), given(n_channels, n_tokens, n_seqs),
        given(d_conv, n_channels), given(3 * size, n_seqs),
    ]  # fmt: skip
    graph = Graph()
    y, kept = short_conv(*leafs, rows)
    graph.build_forward_expand(kept)
    graph.build_forward_expand(y)
    plan = Scheduler([registry.device("cpu")], CompileOptions(fuse=fuse)).plan(graph)
    rng = np.random.default_rng(1)
    for t in leafs:
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    assert len(plan.splits[0].steps) == (2 if fuse else 5)
    return [get_tensor(y).copy(), get_tensor(leafs[-1]).copy()]


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(
    "shape", [(50, 1, 1, 4), (50, 3, 1, 4), (300, 9, 1, 4), (40, 2, 3, 4), (40, 7, 3, 3)]
)
def test_short_convolution(shape: tuple[int, int, int, int], rows: bool) -> None:
    """Channels, tokens, sequences, taps: few tokens have a kernel of their own."""
    (plain, before), (merged, after) = (convolved(fuse, shape, rows) for fuse in (False, True))
    np.testing.assert_allclose(merged, plain, atol=2e-6)
    np.testing.assert_array_equal(after, before)


def demo() -> llama_py.Model:
    return llama_py.load(str(files("llama_py.data") / "demo.gguf"))


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 40])
def test_a_hybrid_model_is_the_same_with_and_without(n_tokens: int) -> None:
    """Convolutions, delta nets, norms and experts of the demo model, over a prompt and a step."""
    model = demo()
    prompt = [7 * i % 2000 for i in range(1, n_tokens + 1)]
    found = []
    for fuse in (False, True):
        ctx = model.context(n_ctx=256, fuse=fuse)
        found.append([ctx.decode(prompt, logits="all"), ctx.decode([11]), ctx.decode([12, 13])])
    for plain, merged in zip(*found, strict=True):
        error = ((plain - merged) ** 2).sum() / (plain**2).sum()
        assert error < 1e-6


def turns(ctx: Context) -> list[NDArray[Any]]:
    """Sequences that start, go on in another order, go on from another's cell, and start anew."""

    def decode(*seqs: int, n: int) -> NDArray[Any]:
        ids = [(7 * s + 31 * i + 5) % 64 for s in seqs for i in range(n)]
        return ctx.decode(Batch(ids, seq_ids=[(s,) for s in seqs for _ in range(n)]), logits="all")

    mem = ctx.memory
    found = [decode(0, 1, 2, 3, n=5), decode(2, 0, 3, 1, n=1), decode(3, 2, 0, n=3)]
    mem.seq_rm(1)
    mem.seq_cp(0, 1)
    found += [decode(1, 0, 2, n=1), decode(0, 1, 2, 3, n=1), decode(3, 1, n=20)]
    mem.seq_rm(2)
    found += [decode(1, 2, 0, n=1), decode(2, 3, 1, 0, n=3)]
    if ctx.cparams.n_rs_seq:
        for s, n in ((0, 2), (3, 1)):
            assert mem.seq_rm(s, mem.seq_pos_max(s) + 1 - n)
    return [*found, decode(1, 0, 3, 2, n=2), decode(3, 1, 2, 0, n=1)]


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("n_rs_seq", [0, 2])
def test_sequences_side_by_side_are_the_same_with_and_without(name: str, n_rs_seq: int) -> None:
    """Cells that sequences read and write at a time are in another order, shared or cleared."""
    plain, merged = (
        turns(Context(live(name, "cpu"), n_ctx=512, n_seq_max=4, n_rs_seq=n_rs_seq, fuse=fuse))
        for fuse in (False, True)
    )
    for a, b in zip(plain, merged, strict=True):
        assert ((a - b) ** 2).sum() / (a**2).sum() < 1e-6


@pytest.mark.parametrize("n_ubatch", [1, 16, 64, 512])
def test_compute_buffers_do_not_grow(n_ubatch: int) -> None:
    """Values that are not in memory make up for what the steps need besides."""
    model = demo()
    merged, plain = (
        model.context(n_ctx=512, n_ubatch=n_ubatch, fuse=fuse).memory_breakdown()["cpu"]["compute"]
        for fuse in (True, False)
    )
    assert 0 < merged <= plain

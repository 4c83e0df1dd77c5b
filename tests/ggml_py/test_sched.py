"""The scheduler's passes on graphs made by hand; values are the same however they are split."""

from __future__ import annotations

import logging
import random as rand

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import get_tensor, set_tensor
from ggml_py.errors import BackendError, UnsupportedOp
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32, I32
from ggml_ref.backend import RefDevice
from tests.support.devices import MainMemoryDevice, TestDevice, given, random, weight

GPU, HOST = TestDevice("gpu"), TestDevice("host")


def graph_of(*results: Tensor) -> Graph:
    graph = Graph()
    for t in results:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    return graph


def plan(result: Tensor, *devices: RefDevice) -> Plan:
    return Scheduler(list(devices or (GPU, HOST))).plan(graph_of(result))


def where(planned: Plan) -> list[list[str]]:
    """Device and ops of each split."""
    return [
        [split.device.name, *(t.op for t in split.nodes if t.op not in VIEWS)]
        for split in planned.splits
    ]


VIEWS = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}


def copies(planned: Plan) -> list[list[str]]:
    return [[copy.name for _, copy in split.inputs] for split in planned.splits]


def test_one_device_has_one_split_and_no_copies() -> None:
    x = given(4)
    planned = plan(ops.scale(ops.scale(x, 2.0), 3.0), GPU)
    assert where(planned) == [["gpu", "SCALE", "SCALE"]]
    assert copies(planned) == [[]]


def test_ops_run_where_their_weights_are() -> None:
    x = given(4, 2, name="x")
    a, b = weight(GPU, 4, 4, name="a"), weight(HOST, 4, 3, name="b")
    y = ops.mul_mat(a, x).set_name("y")
    z = ops.mul_mat(b, y)
    planned = plan(z)
    assert where(planned) == [["gpu", "MUL_MAT"], ["host", "MUL_MAT"]]
    assert copies(planned) == [["gpu#x#0"], ["host#y#0"]]
    for seed in (2, 3):
        set_tensor(x, random(x, seed))
        planned.run()
        expected = get_tensor(x)[0, 0] @ get_tensor(a)[0, 0].T @ get_tensor(b)[0, 0].T
        np.testing.assert_allclose(get_tensor(z)[0, 0], expected, rtol=1e-5)


def test_what_lies_between_goes_to_the_gpu_first() -> None:
    x = given(4)
    on_host = ops.mul(x, weight(HOST, 4))
    on_gpu = ops.mul(ops.scale(on_host, 2.0), weight(GPU, 4))
    assert where(plan(ops.scale(on_gpu, 3.0))) == [
        ["host", "MUL"],
        ["gpu", "SCALE", "MUL", "SCALE"],
    ]


def test_the_host_takes_what_touches_no_gpu() -> None:
    x = given(4)
    y = ops.sqr(ops.mul(ops.scale(x, 2.0), weight(HOST, 4)))
    assert where(plan(y)) == [["host", "SCALE", "MUL", "SQR"]]


def test_a_refused_op_falls_back_to_the_host_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    gpu, x = TestDevice("gpu", "SQR"), given(4)
    y = ops.mul(x, weight(gpu, 4))
    z = ops.mul(ops.sqr(ops.sqr(y)), weight(gpu, 4))
    with caplog.at_level(logging.INFO, "llama_py"):
        planned = plan(z, gpu, HOST)
    assert where(planned) == [["gpu", "MUL"], ["host", "SQR", "SQR"], ["gpu", "MUL"]]
    assert [r.getMessage() for r in caplog.records] == [
        "SQR runs on host, because gpu does not support it: no SQR here"
    ]


def test_what_no_device_runs_is_told_with_all_reasons() -> None:
    y = ops.sqr(given(4, name="x"))
    refusing = [TestDevice("a", "SQR"), TestDevice("b", "SQR")]
    with pytest.raises(UnsupportedOp, match=r"SQR.*x.*a: no SQR here; b: no SQR here"):
        plan(y, *refusing)


def test_nodes_move_up_to_a_device_on_the_same_memory() -> None:
    """As BLAS beside the CPU: what it can run it gets, the rest stays."""
    host = TestDevice("host")
    blas = TestDevice("blas", "SQR", shares=(host,))
    host.shares = (blas,)
    x = given(4, 4)
    y = ops.scale(ops.sqr(ops.mul(x, weight(host, 4))), 2.0)
    planned = plan(y, blas, host)
    assert where(planned) == [["blas", "MUL"], ["host", "SQR"], ["blas", "SCALE"]]
    assert copies(planned) == [[], [], []]


def test_a_refused_op_goes_where_most_of_its_sources_are() -> None:
    a, b = TestDevice("a", "ADD"), TestDevice("b", "ADD")
    idle, beside_a = TestDevice("idle"), TestDevice("beside_a", shares=(a,))
    x = given(4)
    y = ops.add(ops.mul(x, weight(a, 4)), ops.mul(x, weight(b, 4)).set_name("far"))
    planned = plan(y, a, b, idle, beside_a, HOST)
    assert where(planned)[-1] == ["beside_a", "ADD"]
    assert copies(planned)[-1] == ["beside_a#far#0"]


def test_factors_of_rope_are_too_small_to_decide() -> None:
    x, pos = given(4, 1, 2), Tensor(I32, (2,))
    pos.flags |= FLAG_INPUT
    x = ops.mul(x, weight(GPU, 4))
    y = ops.rope_ext(x, pos, weight(HOST, 2), 4, 0, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)
    assert where(plan(y)) == [["gpu", "MUL", "ROPE"]]


def test_views_are_looked_at_where_they_are_whatever_a_device_says() -> None:
    picky = TestDevice("gpu", "NONE", *VIEWS)
    x = given(4, 3)
    y = ops.mul(x, weight(picky, 4))
    z = ops.cont(ops.transpose(ops.view(ops.reshape(y, 2, 6), (2, 4), (2,), 2)))
    planned = plan(z, picky, HOST)
    assert where(planned) == [["gpu", "MUL", "CONT"]]
    set_tensor(x, random(x, 5))
    planned.run()
    expected = get_tensor(y)[0, 0].reshape(6, 2)[1:5].T
    np.testing.assert_array_equal(get_tensor(z)[0, 0], expected)


def test_a_copied_view_keeps_its_strides() -> None:
    x = given(4, 4, name="x")
    y = ops.mul(x, weight(GPU, 4))
    part = ops.transpose(ops.view(y, (2, 3), (4,), 5)).set_name("part")
    z = ops.mul(weight(HOST, 3, 2), part)
    planned = plan(z)
    assert copies(planned) == [["gpu#x#0"], ["host#part#0"]]
    set_tensor(x, random(x, 6))
    planned.run()
    factor = get_tensor(z.src[0])[0, 0]
    np.testing.assert_allclose(
        get_tensor(z)[0, 0], factor * get_tensor(y)[0, 0, 1:4, 1:3].T, rtol=1e-6
    )


def test_a_tensor_is_copied_once_to_a_device() -> None:
    x = given(4, name="x")
    a = ops.mul(x, weight(GPU, 4)).set_name("a")
    b = ops.mul(a, weight(HOST, 4)).set_name("b")
    c = ops.mul(ops.add(ops.mul(b, weight(GPU, 4)), x), weight(GPU, 4)).set_name("c")
    d = ops.add(ops.mul(c, weight(HOST, 4)), a)
    planned = plan(d)
    assert copies(planned) == [["gpu#x#0"], ["host#a#0"], ["gpu#b#0"], ["host#c#0"]]


def test_a_weight_that_must_be_copied_begins_a_split() -> None:
    gpu = TestDevice("gpu", "MUL_MAT")
    x = given(4)
    y = ops.mul(x, weight(gpu, 4))
    for seed in (1, 2):
        y = ops.mul_mat(weight(gpu, 4, 4, seed=seed), y)
    assert where(plan(y, gpu, HOST)) == [["gpu", "MUL"], ["host", "MUL_MAT"], ["host", "MUL_MAT"]]


def test_pins_decide_where_the_device_is_able() -> None:
    x = given(4)
    a = ops.mul(x, weight(GPU, 4))
    b = ops.scale(a, 2.0)
    scheduler = Scheduler([GPU, HOST])
    assert where(scheduler.plan(graph_of(b), [(b, HOST)])) == [["gpu", "MUL"], ["host", "SCALE"]]
    unable = TestDevice("host", "SCALE")
    c = ops.scale(ops.mul(x, weight(GPU, 4)), 3.0)
    planned = Scheduler([GPU, HOST, unable]).plan(graph_of(c), [(c, unable)])
    assert where(planned) == [["gpu", "MUL", "SCALE"]]


def test_memory_that_no_device_in_use_can_read_is_told() -> None:
    """The words of ggml, for a cache on a device that was left out (upstream: cache_k_l15)."""
    cache = Tensor(F32, (4,), name="cache_k_l15")
    cache.buffer = TestDevice("other").alloc(16)
    with pytest.raises(BackendError) as caught:
        plan(ops.scale(cache, 2.0))
    message = str(caught.value)
    assert message.startswith(
        "pre-allocated tensor (cache_k_l15) in a buffer (RefBuffer) that cannot run the operation"
        " (NONE): no device in use can read that buffer"
    )


def test_a_cache_on_a_device_that_cannot_write_it_is_told() -> None:
    gpu = TestDevice("gpu", "SET_ROWS")
    cache, rows, ids = Tensor(F32, (4, 8)), given(4, 2), Tensor(I32, (2,))
    cache.buffer = gpu.alloc(cache.nbytes)
    with pytest.raises(BackendError, match=r"in a buffer \(gpu\).*\(SET_ROWS\): gpu: no SET_ROWS"):
        plan(ops.set_rows(cache, rows, ids), gpu, HOST)


def test_what_writes_into_a_computed_tensor_runs_where_that_is() -> None:
    x = given(4, 2)
    y = ops.mul(x, weight(GPU, 4))
    graph = graph_of(y, ops.cpy(ops.mul(x, weight(HOST, 4)), y))
    planned = Scheduler([GPU, HOST]).plan(graph)
    assert where(planned) == [["gpu", "MUL"], ["host", "MUL"], ["gpu", "CPY"]]


def test_a_foreign_layout_is_not_copied() -> None:
    x, w = given(4, name="x"), weight(HOST, 4)
    w.layout = "panels"
    with pytest.raises(UnsupportedOp, match=r"host: .*layout panels of another"):
        plan(ops.mul(ops.mul(x, weight(GPU, 4)), w))


def test_reserve_leaves_the_graph_as_it_is() -> None:
    x = given(4)
    graph = graph_of(ops.mul(ops.mul(x, weight(GPU, 4)), weight(HOST, 4)))
    scheduler = Scheduler([GPU, HOST])
    before = [t.src for t in graph.nodes]
    sizes = scheduler.reserve(graph)
    assert [t.src for t in graph.nodes] == before
    assert scheduler.n_splits == 2
    assert all(sizes)
    scheduler.plan(graph)
    assert scheduler.compute_sizes() == sizes


def test_watch_sees_every_node_on_every_device() -> None:
    seen: list[str] = []
    x = given(4)
    graph = graph_of(ops.mul(ops.mul(x, weight(GPU, 4)), weight(HOST, 4)))
    planned = Scheduler([GPU, HOST], watch=lambda t: seen.append(t.op)).plan(graph)
    set_tensor(x, random(x, 1))
    planned.run()
    assert seen == ["MUL", "MUL"]


@pytest.mark.parametrize(
    ("n", "gpu_kind", "where_it_runs"),
    [
        (31, "gpu", [["host", "MUL_MAT", "MUL_MAT"]]),
        (32, "gpu", [["gpu", "MUL_MAT"], ["gpu", "MUL_MAT"]]),
        (32, "accel", [["host", "MUL_MAT", "MUL_MAT"]]),
    ],
)
def test_a_gpu_has_the_weights_of_large_batches_copied(
    n: int, gpu_kind: str, where_it_runs: list[list[str]]
) -> None:
    """Each copied weight has a split of its own, so that they can share memory."""
    gpu, host = TestDevice("gpu"), MainMemoryDevice("host")
    gpu.kind = gpu_kind
    x, a, b = given(4, n, name="x"), weight(host, 4, 4, name="a"), weight(host, 4, 3, name="b")
    y = ops.mul_mat(b, ops.mul_mat(a, x))
    planned = plan(y, gpu, host)
    assert where(planned) == where_it_runs
    if len(where_it_runs) == 2:
        assert copies(planned) == [["gpu#a#0", "gpu#x#0"], ["gpu#b#0"]]
    set_tensor(x, random(x, 3))
    planned.run()
    expected = get_tensor(x)[0, 0] @ get_tensor(a)[0, 0].T @ get_tensor(b)[0, 0].T
    np.testing.assert_allclose(get_tensor(y)[0, 0], expected, rtol=1e-4)


def test_rows_of_a_table_are_taken_where_it_is() -> None:
    gpu, host = TestDevice("gpu"), MainMemoryDevice("host")
    gpu.kind = "gpu"
    ids = Tensor(I32, (64,))
    ids.flags |= FLAG_INPUT
    assert where(plan(ops.get_rows(weight(host, 4, 8), ids), gpu, host)) == [["host", "GET_ROWS"]]


# (a, b, makes a weight) -> a tensor of a's shape
MAKERS = [
    lambda a, b, w: ops.add(a, b),
    lambda a, b, w: ops.scale(a, 0.5),
    lambda a, b, w: ops.sqr(ops.scale(a, 0.3)),
    lambda a, b, w: ops.cont(ops.transpose(a)),
    lambda a, b, w: ops.mul(b, ops.cont(a)),
    lambda a, b, w: ops.mul(a, w()),
]


def random_graph(rng: rand.Random, devices: list[TestDevice]) -> tuple[Tensor, Tensor]:
    """(input, result) of twenty ops that read one another, weights anywhere."""
    x = given(4, 4, name="x")
    made = [x]
    for i in range(20):
        a, b = rng.choice(made[-4:]), rng.choice(made)
        made.append(rng.choice(MAKERS)(a, b, lambda: weight(rng.choice(devices), 4, seed=i)))  # noqa: B023
    return x, made[-1]


@pytest.mark.parametrize("seed", range(25))
def test_values_do_not_depend_on_the_split(seed: int) -> None:
    kinds = ("ADD", "SCALE", "SQR", "CONT", "MUL")
    chooser = rand.Random(seed)
    devices = [TestDevice(f"d{i}", *chooser.sample(kinds, chooser.randint(0, 3))) for i in range(3)]
    host = TestDevice("host")

    def run(*used: TestDevice) -> list[np.ndarray]:
        homes = [*used] if len(used) > 1 else [host] * 4
        x, y = random_graph(rand.Random(seed), homes)
        planned = Scheduler(list(used)).plan(graph_of(y))
        found = []
        for repeat in range(2):
            set_tensor(x, random(x, 100 + repeat))
            planned.run()
            found.append(get_tensor(y))
        return found

    np.testing.assert_array_equal(run(*devices, host), run(host))


def test_why_each_tensor_is_where_it_is() -> None:
    """A node at its weight, one beside it, one that the device refuses, and one that writes."""
    gpu = TestDevice("gpu", "NEG")
    x, kept = given(4, 2, name="x"), weight(HOST, 4, 2, name="kept")
    product = ops.mul_mat(weight(gpu, 4, 4, name="w"), x)
    beside = ops.scale(product, 2.0)
    refused = ops.neg(beside)
    written = ops.cpy(refused, kept)
    scheduler = Scheduler([gpu, HOST])
    graph = graph_of(written)
    layout, causes = scheduler.explain(graph, [(product, gpu)])
    assert layout.assignment is not None
    tensors = (x, product, beside, refused, written)
    assert [(layout.assignment.find_device(t), causes[id(t)]) for t in tensors] == [
        (1, "input"),
        (0, "pinned"),
        (0, "near"),
        (1, "near"),
        (1, "memory"),
    ]
    assert product.src[1] is x, "nodes read no copies"
    unpinned = scheduler.explain(graph)[1]
    assert unpinned[id(product)] == "weight"
    assert sum(scheduler.compute_sizes()) > 0

"""Indices among the data of an op that name no row: an error, and nothing foreign is touched."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import CompileOptions, get_tensor, set_tensor
from ggml_py.errors import OutOfRange
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import BY_NAME, I32, I64
from tests.support.installed import devices_or_skip

BACKENDS = ("cpu", "ref", "opencl")
N = 4  # rows that there are
FAR = 2**31 - 1  # as a row it is in nobody's memory


class Leafs:
    """Zeros, and the one tensor of indices."""

    def __init__(self) -> None:
        self.zeros: list[Tensor] = []
        self.ids: Tensor | None = None

    def __call__(self, *ne: int, type: str = "f32") -> Tensor:
        t = Tensor(BY_NAME[type], ne)
        t.set_name(f"leaf {len(self.zeros)}")
        self.zeros.append(t)
        return t

    def index(self, *ne: int, wide: bool = False) -> Tensor:
        self.ids = Tensor(I64 if wide else I32, ne)
        self.ids.set_name("ids")
        return self.ids


def ssm_scan(new: Leafs, n_seqs: int = 3) -> Tensor:
    x, b, c = new(8, 2, 1, n_seqs), new(16, 1, 1, n_seqs), new(16, 1, 1, n_seqs)
    dt, a = new(2, 1, n_seqs), new(1, 2)
    return ops.ssm_scan(new(16, 8, 2, N), x, dt, a, b, c, new.index(n_seqs))


def ssm_conv_seq(new: Leafs) -> Tensor:
    return ops.ssm_conv_seq(new(3, 8, N), new(8, 3), new(4, 8), new.index(N, 3))


def delta_net(new: Leafs) -> Tensor:
    """Reads its state from a row of a cache and leaves it in another."""
    cache, ne = new(16 * 16, N), (16, 1, 1, 1)
    state = ops.reshape(ops.get_rows(cache, new.index(1)), 16, 16, 1, 1)
    net = ops.gated_delta_net(new(*ne), new(*ne), new(*ne), new(*ne), new(1, 1, 1, 1), state, 1)
    return ops.cpy(ops.view(net, (256, 1), (256,), 16), ops.view(cache, (256, 1), (256,), 0))


def mul_mat_id(new: Leafs, n_tokens: int, type: str = "f32") -> Tensor:
    k = 256
    return ops.mul_mat_id(new(k, 64, N, type=type), new(k, 1, n_tokens), new.index(2, n_tokens))


def set_rows(new: Leafs, type: str, wide: bool) -> Tensor:
    return ops.set_rows(new(64, N, type=type), new(64, 3), new.index(3, wide=wide))


MAKE: dict[str, Callable[[Leafs], Tensor]] = {
    "GET_ROWS f32": lambda new: ops.get_rows(new(64, N), new.index(3)),
    "GET_ROWS f16": lambda new: ops.get_rows(new(64, N, type="f16"), new.index(3)),
    "GET_ROWS i32": lambda new: ops.get_rows(new(64, N, type="i32"), new.index(3)),
    "GET_ROWS q8_0": lambda new: ops.get_rows(new(64, N, type="q8_0"), new.index(3)),
    "GET_ROWS q4_K": lambda new: ops.get_rows(new(256, N, type="q4_K"), new.index(3)),
    "SET_ROWS f32": lambda new: set_rows(new, "f32", wide=False),
    "SET_ROWS f16 i64": lambda new: set_rows(new, "f16", wide=True),
    "SET_ROWS q8_0 i64": lambda new: set_rows(new, "q8_0", wide=True),
    "GET_ROWS_BACK": lambda new: ops.get_rows_back(new(64, 3), new.index(3), new(64, N)),
    "ADD_ID": lambda new: ops.add_id(new(64, 2, 3), new(64, N), new.index(2, 3)),
    "MUL_MAT_ID of one": lambda new: mul_mat_id(new, 1),
    "MUL_MAT_ID of few": lambda new: mul_mat_id(new, 3, "q8_0"),
    "MUL_MAT_ID of many": lambda new: mul_mat_id(new, 40, "q4_K"),
    "SSM_SCAN": ssm_scan,
    "SSM_CONV_SEQ": ssm_conv_seq,
    "GATED_DELTA_NET": delta_net,
}


class Made:
    """A planned node that can be given indices."""

    def __init__(self, kind: str, backend: str, fuse: bool = True) -> None:
        self.new = Leafs()
        self.node = MAKE[kind](self.new)
        assert self.new.ids is not None
        self.ids = self.new.ids
        self.node.flags |= FLAG_OUTPUT
        graph = Graph()
        graph.build_forward_expand(self.node)
        device = devices_or_skip(backend)[0]
        self.plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)

    def run(self, ids: NDArray[np.int64], fill: int = 0) -> NDArray[np.float32]:
        """With zeros, or the last leaf filled with something else."""
        for t in self.new.zeros:
            if t.buffer is not None:  # not what is there for its shape
                t.buffer.write(t.offset, np.zeros(t.nbytes, np.uint8))
        if fill:
            source = self.new.zeros[-1]
            set_tensor(source, np.full(source.ne[::-1], fill, np.float32))
        set_tensor(self.ids, ids.astype(np.int64 if self.ids.type is I64 else np.int32))
        self.plan.run()
        return get_tensor(self.node)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", MAKE)
def test_an_index_that_names_no_row_is_an_error(kind: str, backend: str) -> None:
    made = Made(kind, backend)
    good = np.zeros(made.ids.ne[::-1], np.int64)
    made.run(good)
    for bad in (N, -1, FAR, -FAR):
        ids = good.copy()
        ids.reshape(-1, made.ids.ne[0])[-1, 0] = bad
        with pytest.raises(OutOfRange, match=rf"index must be in \[0, {N}\), got {bad}; .*ids"):
            made.run(ids)
    made.run(good)  # the error is not raised twice


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
@pytest.mark.parametrize("kind", ["SET_ROWS f32", "SET_ROWS f16 i64"])
def test_no_row_is_set_in_the_place_of_a_wrong_one(kind: str, backend: str) -> None:
    made = Made(kind, backend)
    with pytest.raises(OutOfRange):
        made.run(np.array([1, N, 2]), fill=1)
    rows = get_tensor(made.node)[0, 0]
    assert (rows[1:3] == 1).all() and not rows[[0, 3]].any()


def test_the_first_of_several_is_told() -> None:
    """One thread comes upon one of them first; what is told belongs together."""
    new = Leafs()
    a, ids = new(8, N), new.index(64)
    y = ops.get_rows(a, ids)
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([*devices_or_skip("cpu")]).plan(graph)
    set_tensor(ids, np.arange(100, 164, dtype=np.int32))
    with pytest.raises(OutOfRange, match=r"GET_ROWS .*: index must be in \[0, 4\), got 1\d\d"):
        plan.run()


def test_experts_that_are_fewer_than_those_of_the_product_before() -> None:
    """Tokens are grouped once for both: the groups name experts that the second does not have."""
    new = Leafs()
    x, ids = new(32, 1, 40), new.index(2, 40)
    first, second = (ops.mul_mat_id(new(32, 64, n), x, ids) for n in (8, N))
    y = ops.add(first, second)
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([*devices_or_skip("cpu")]).plan(graph)
    set_tensor(ids, np.full((40, 2), N, np.int32))
    with pytest.raises(OutOfRange, match=rf"index must be in \[0, {N}\), got {N}"):
        plan.run()


def test_no_experts_and_no_cells() -> None:
    new = Leafs()
    with pytest.raises(ValueError, match="at least one matrix is needed"):
        ops.mul_mat_id(new(8, 8, 0), new(8, 1, 1), new.index(2, 1))
    with pytest.raises(ValueError, match="s must have a cell"):
        x, b, c = new(8, 2, 1, 1), new(16, 1, 1, 1), new(16, 1, 1, 1)
        ops.ssm_scan(new(16, 8, 2, 0), x, new(2, 1, 1), new(1, 2), b, c, new.index(1))

"""Recurrences whose states are copied to a cache, computed with and without fused steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import CompileOptions, Device, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import F32, I32
from tests.support.fused_graphs import name

CELLS, HEAD, K = 6, 1, 4  # the cache has K groups of so many rows; the first row written


class Made:
    """Leaves with values, and the node that is made of them."""

    def __init__(self, n_tokens: int, n_seqs: int, rows: list[int]) -> None:
        self.n_tokens, self.n_seqs, self.rows = n_tokens, n_seqs, rows
        self.values: dict[str, tuple[Tensor, NDArray[Any]]] = {}
        self.rng = np.random.default_rng(3)

    def __call__(self, *ne: int, low: float = -1, high: float = 1) -> Tensor:
        return self.leaf(self.rng.uniform(low, high, ne[::-1]).astype(np.float32))

    def leaf(self, values: NDArray[Any]) -> Tensor:
        t = Tensor(F32 if values.dtype == np.float32 else I32, values.shape[::-1])
        t.set_name(f"leaf {len(self.values)}")
        self.values[t.name] = t, values
        return t

    def cache(self, size: int) -> Tensor:
        return self(size, CELLS * K)

    def started(self, cache: Tensor) -> Tensor:
        """The states that sequences start from, copied out of the cache."""
        return ops.get_rows(cache, self.leaf(np.array(self.rows, np.int32)))


def delta_net(new: Made, gates: int) -> tuple[Tensor, Tensor, int]:
    size, n_head = 16, 3
    ne = (size, n_head, new.n_tokens, new.n_seqs)
    cache = new.cache(size * size * n_head)
    state = ops.reshape(new.started(cache), size, size, n_head, new.n_seqs)
    g = new(gates, *ne[1:], low=-1, high=0)
    net = ops.gated_delta_net(new(*ne), new(*ne), new(*ne), g, new(1, *ne[1:]), state, K)
    return net, cache, size * n_head * new.n_tokens * new.n_seqs


def scan(new: Made, dim: int) -> tuple[Tensor, Tensor, int]:
    """The cache itself is read."""
    n, n_head, n_group = 16, 20, 2 if dim > 1 else 1
    cache = new.cache(n * dim * n_head)
    states = ops.reshape(cache, n, dim, n_head, CELLS * K)
    x = new(dim, n_head, new.n_tokens, new.n_seqs)
    b, c = (new(n, n_group, new.n_tokens, new.n_seqs) for _ in "bc")
    dt, a = new(n_head, *x.ne[2:]), new(1 if dim > 1 else n, n_head, low=-1, high=0)
    ids = new.leaf(np.array(new.rows, np.int32))
    return ops.ssm_scan(states, x, dt, a, b, c, ids, K), cache, x.n_elements


def rows(new: Made, n: int, size: int) -> tuple[list[Tensor], Tensor]:
    """What linear attention is given for each token, and the cache."""
    ne = (size, 2, new.n_tokens * new.n_seqs)
    return [new(*ne) for _ in range(n)], new.cache(size * size * 2)


def wkv6(new: Made, size: int) -> tuple[Tensor, Tensor, int]:
    (k, v, r, td), cache = rows(new, 4, size)
    net = ops.rwkv_wkv6(k, v, r, new(size, 2), td, new.started(cache), K)
    return net, cache, k.n_elements


def wkv7(new: Made, size: int) -> tuple[Tensor, Tensor, int]:
    (r, w, k, v, a), cache = rows(new, 5, size)
    a = ops.scale(a, 0.1)
    return ops.rwkv_wkv7(r, w, k, v, a, a, new.started(cache), K), cache, k.n_elements


def gated(new: Made, size: int) -> tuple[Tensor, Tensor, int]:
    (k, v, q, g), cache = rows(new, 4, size)
    net = ops.gated_linear_attn(k, v, q, g, new.started(cache), 0.5, K)
    return net, cache, k.n_elements


RECURRENCES: dict[str, tuple[Callable[..., tuple[Tensor, Tensor, int]], int]] = {
    "delta net": (delta_net, 1), "KDA": (delta_net, 16), "Mamba": (scan, 1), "Mamba-2": (scan, 8),
    "RWKV-6": (wkv6, 20), "RWKV-7": (wkv7, 20), "gated": (gated, 20),
}  # fmt: skip


def computed(
    kind: str, new: Made, device: Device, fuse: bool
) -> tuple[list[NDArray[Any]], list[str]]:
    """Outputs and the whole cache; and what was run."""
    build, size = RECURRENCES[kind]
    net, cache, n_outputs = build(new, size)
    n_written = min(K, new.n_tokens)
    shape = (cache.ne[0], new.n_seqs, n_written)
    source = ops.view(net, shape, (shape[0], shape[0] * new.n_seqs), n_outputs)
    target = ops.view(cache, shape, (shape[0], shape[0] * CELLS), HEAD * shape[0])
    outputs = ops.scale(ops.view(net, (n_outputs,)), 1.0)
    outputs.flags |= FLAG_OUTPUT
    graph = Graph()
    for t in (net, ops.cpy(source, target), outputs):
        graph.build_forward_expand(t)
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    for t, values in new.values.values():
        set_tensor(t, values)
    plan.run()
    (split,) = plan.splits
    return [get_tensor(outputs), get_tensor(cache)], [name(s) for s in split.steps]


# Where sequences start: rows of their own, or those that others overwrite; of the last, two start
# where one is to go.
ROWS = {
    1: [[HEAD], [HEAD + 2 * CELLS], [5], [HEAD + CELLS]],
    3: [[1, 2, 3], [2, 3, 1], [3 + CELLS, 2, 1 + CELLS], [5, 2, 2]],
}

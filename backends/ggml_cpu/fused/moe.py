"""The weighted sum of a token's experts: MUL by the weights, then one ADD an expert."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import CHUNK, chunks_of
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.step import Step
from ggml_cpu.window import Window, rewrite, root
from ggml_py.tensor import Tensor
from ggml_py.types import F32

MAX_USED = 64  # experts of a token


def weights_bytes(node: Tensor, nth: int) -> tuple[int, int]:
    """A copy of the weights; MAX_USED a token are reserved."""
    return 4 * MAX_USED * node.ne[1], 0


@kernel()
def copy_weights(p, ith, nth):
    if ith == 0:
        copy_bytes(v.shared(p), v.data(p, 2), 4 * v.ne(p, 2, 1) * v.ne(p, 2, 2))


@kernel(prepare=(copy_weights,), scratch=weights_bytes)
def weighted_sum(p, ith, nth):
    """dst[:, t] = sum_e src0[:, e, t] * src1[0, e, t]."""
    n, n_used = v.ne(p, 0, 0), v.ne(p, 1, 1)
    pieces = chunks_of(n)
    start, stop = v.split(v.ne(p, 0, 1) * pieces, ith, nth)
    for u in range(start, stop):
        t, c = u // pieces, u % pieces * CHUNK
        x, w = v.data(p, 1) + t * v.nb(p, 1, 2), v.shared(p) + 4 * t * n_used
        d = v.data(p, 0) + t * v.nb(p, 0, 1)
        end = min(n, c + CHUNK)
        while c < end:
            y = v.f32_load_n(x + 4 * c, end - c) * v.ld_f32(w)
            for e in range(1, n_used):
                z = v.f32_load_n(x + e * v.nb(p, 1, 1) + 4 * c, end - c)
                y = y + z * v.ld_f32(w + 4 * e)
            v.store_n(d + 4 * c, y, end - c)
            c += v.LANES


def chain_of_adds(w: Window, i: int) -> list[int]:
    """The steps that add up the experts of the product of step i, in order; [] if they do not."""
    product = w.step(i).node
    n, n_used, n_tokens, _ = product.ne
    users = w.readers_of(product)
    total: Tensor | None = None
    for e, j in enumerate(users, 1):
        add = w.step(j).node if w.op(j) == "ADD" else None
        if add is None or add.src[1] is None or add.src[0] is None:
            return []
        left = add.src[0]
        first = is_expert(left, product, 0) if total is None else left is total
        if not first or not is_expert(add.src[1], product, e) or add.ne[:2] != (n, n_tokens):
            return []
        if e < n_used - 1 and w.only_reader(j) < 0:
            return []
        total = add
    return users if len(users) == n_used - 1 else []


def is_expert(t: Tensor, product: Tensor, e: int) -> bool:
    """Whether t is a view of the e-th expert's column of every token."""
    return root(t) is product and t.view_offs == e * product.nb[1] and t.nb[1] == product.nb[2]


@rewrite("MUL")
def expert_sum(w: Window, i: int) -> None:
    product = w.step(i).node
    x, weights = product.src[0], product.src[1]
    if x is None or weights is None or weights.ne != (1, *product.ne[1:]) or product.ne[3] != 1:
        return
    if not 2 <= product.ne[1] <= MAX_USED or any(
        t.type is not F32 or not t.is_contiguous() for t in (x, weights)
    ):
        return
    adds = chain_of_adds(w, i)
    if adds and w.private(i, adds):
        total = w.step(adds[-1]).node
        step = Step(weighted_sum, total, (total, x, weights), b"\0")
        w.merge((i, *adds), adds[-1], step, staged=(weights,))

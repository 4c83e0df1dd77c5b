"""SOFT_MAX: turn rows of scores into weights that sum to 1, with mask, ALiBi slopes and sinks."""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import F16, F32, Element, dense_rows, n_rows, require_all, row_address
from ggml_py.tensor import Tensor

MINUS_INFINITY = float("-inf")


@fn
def alibi_slope(head, n_head, max_bias):
    """Return the ALiBi slope of a head (arXiv 2108.12409), 1 without ALiBi."""
    if max_bias <= 0.0:
        return v.float32(1.0)
    power = 1
    while 2 * power <= n_head:
        power *= 2
    if head < power:
        return v.powf(2.0, -max_bias * (head + 1) / power)
    return v.powf(2.0, -0.5 * max_bias * (2 * (head - power) + 1) / power)


@fn
def exponentials(x, n, top):
    """Compute x[i] = exp(x[i] - top) in place; return the sum in float64."""
    total = v.to_f64(v.f32(0.0))
    i = 0
    while i + v.LANES <= n:
        e = v.vexp(v.f32_load(x + 4 * i) - top)
        v.store(x + 4 * i, e)
        total = total + v.to_f64(e)
        i += v.LANES
    if i < n:
        e = v.vexp(v.f32_load_n(x + 4 * i, n - i) - top)
        v.store_n(x + 4 * i, e, n - i)
        total = total + v.to_f64(v.select(v.iota() < n - i, e, 0.0))
    return v.vsum(total)


@fn
def multiply(x, n, factor):
    for i in range(0, n, v.LANES):
        v.store_n(x + 4 * i, v.f32_load_n(x + 4 * i, n - i) * factor, n - i)


def _soft_max(element: Element) -> None:
    load_n, size = element.load_n, element.size

    @fn
    def scores(d, x, mask, n, scale, slope):
        """Compute d = scale * x + slope * mask; return the maximum."""
        top = v.f32(MINUS_INFINITY)
        for i in range(0, n, v.LANES):
            y = v.f32_load_n(x + 4 * i, n - i) * scale
            if mask != 0:
                y = y + load_n(mask + i * size, n - i) * slope
            v.store_n(d + 4 * i, y, n - i)
            top = v.vmax(v.select(v.iota() < n - i, y, MINUS_INFINITY), top)
        return v.vmaxval(top)

    @fn
    def mask_row(p, t, head, batch):
        if v.data(p, 2) == 0:
            return 0
        i2, i3 = head % v.ne(p, 2, 2), batch % v.ne(p, 2, 3)
        return v.data(p, 2) + t * v.nb(p, 2, 1) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3)

    accepted = require_all(mask_is(element.name), dense_rows)

    @kernel("SOFT_MAX", when=accepted, name=f"soft_max_{element.name}")
    def soft_max(p, ith, nth):
        n, n_tokens, n_head = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        scale, max_bias = v.op_f32(p, 0), v.op_f32(p, 1)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            t, head, batch = r % n_tokens, r // n_tokens % n_head, r // (n_tokens * n_head)
            d, mask = row_address(p, 0, r), mask_row(p, t, head, batch)
            slope = alibi_slope(head, n_head, max_bias)
            top = scores(d, row_address(p, 1, r), mask, n, scale, slope)
            total = 0.0
            if v.data(p, 3) != 0:
                sink = v.ld_f32(v.data(p, 3) + 4 * head)
                top = max(top, sink)
                total = v.expf(sink - top)
            total += exponentials(d, n, top)
            multiply(d, n, 1.0 / total)


def mask_is(name: str) -> Callable[[Tensor], str]:
    """Return a `when` for f32 scores with a mask of type `name`; no mask counts as f32."""

    def check(node: Tensor) -> str:
        mask = node.optional(1)
        found = "f32" if mask is None else mask.type.name
        if found == name and node.type.name == "f32":
            return ""
        return f"needs f32 scores and a mask of type {name}; got {node}, mask {found}"

    return check


for _e in (F32, F16):
    _soft_max(_e)

"""LIGHTNING_INDEXER: pack LANES keys into a panel, then multiply it by every head and token."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import types_are
from ggml_cpu.kernels.attention._sources import KINDS, SOURCES, WORD, Source
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

Q, K, W, MASK = 1, 2, 3, 4
HEADS = 4  # heads processed at a time


@fn
def panel_bytes(n: int) -> int:
    """Return the bytes of a panel of LANES keys of n values; spare rows of f32 follow it."""
    return WORD * n


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    return 0, 2 * panel_bytes(node.source(0).ne[0])


def key_kind(node: Tensor) -> tuple[int]:
    return (KINDS.index(node.source(1).type.name),)


@fn
def add_heads(p, t, seq, head, panel, total):
    """Return total + the weighted sum of relu(q * k) over up to HEADS heads, per key."""
    n, n_head = v.ne(p, Q, 0), v.ne(p, Q, 1)
    step, rest = v.nb(p, Q, 1), n_head - head
    q = v.data(p, Q) + head * step + t * v.nb(p, Q, 2) + seq * v.nb(p, Q, 3)
    dots = v.f32_regs(4)
    for i in range(n):
        keys = v.f32_load(panel + i * WORD)
        for h in range(HEADS):
            dots[h] = v.fma(keys, v.f32_bcast(q + min(h, rest - 1) * step + 4 * i), dots[h])
    w = v.data(p, W) + 4 * head + t * v.nb(p, W, 1) + seq * v.nb(p, W, 3)
    for h in range(HEADS):
        if h < rest:
            total = v.fma(v.vmax(dots[h], 0.0), v.f32_bcast(w + 4 * h), total)
    return total


def rows_dense(node: Tensor) -> str:
    for t in node.sources():
        if not t.has_contiguous_rows():
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""


def _indexer(source: Source) -> None:
    make_panel = source.panel

    def check(node: Tensor) -> str:
        kind = node.source(1).type.name
        if not source.accepts(kind, kind):
            return f"needs {source.name} keys; got {kind}"
        return types_are("f32", "f32", kind, "f32", "f16")(node) or rows_dense(node)

    @kernel(
        "LIGHTNING_INDEXER",
        when=check,
        scratch=scratch,
        extra=key_kind,
        name=f"indexer_{source.name}",
    )
    def indexer(p, ith, nth):
        n, n_kv, panel = v.ne(p, Q, 0), v.ne(p, K, 2), v.local(p, ith)
        blocks = (n_kv + LANES - 1) // LANES
        start, stop = v.split(blocks * v.ne(p, Q, 3), ith, nth)
        for u in range(start, stop):
            first, seq = u % blocks * LANES, u // blocks
            keys = v.data(p, K) + first * v.nb(p, K, 2) + seq * v.nb(p, K, 3)
            rows = min(LANES, n_kv - first)
            spare = panel + panel_bytes(n)
            make_panel(v.extra(p, 0), keys, v.nb(p, K, 2), rows, n, panel, spare)
            for t in range(v.ne(p, Q, 2)):
                total = v.f32(0.0)
                for head in range(0, v.ne(p, Q, 1), HEADS):
                    total = add_heads(p, t, seq, head, panel, total)
                mask = v.data(p, MASK) + t * v.nb(p, MASK, 1) + 2 * first
                mask = mask + seq % v.ne(p, MASK, 3) * v.nb(p, MASK, 3)
                to = v.data(p, 0) + 4 * first + t * v.nb(p, 0, 1) + seq * v.nb(p, 0, 3)
                v.store_n(to, total + v.f16_load_n(mask, rows), rows)


for _source in SOURCES:
    _indexer(_source)

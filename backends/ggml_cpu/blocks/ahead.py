"""Software prefetch of weights or KV cache cells that the kernel multiplies later.

Hardware prefetchers alone do not saturate memory bandwidth: they restart on every page, so the
first cache lines of a page arrive late. The kernels therefore prefetch AHEAD bytes ahead. On CPUs
with SIDE_BY_SIDE they instead interleave the lines of the next PAGES pages, so that the hardware
prefetchers follow these pages in parallel. Some CPUs are faster without software prefetch (ALONE).
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import AMX, TILE, ZEN4

AHEAD = 8192  # bytes: twice memory latency times bandwidth
LINE_BITS, PAGE_BITS = 6, 12  # log2 of the bytes of a cache line and of a page
LINE, LINES = 1 << LINE_BITS, 1 << PAGE_BITS - LINE_BITS  # bytes per line, lines per page
PAGES_BITS = 2
PAGES = 1 << PAGES_BITS  # pages to prefetch interleaved
GROUP_BITS = PAGES_BITS + PAGE_BITS
# On Xeons with AMX, GEMV with 8-bit weights is 1.5x as fast with this, 1.2x as fast with AHEAD.
SIDE_BY_SIDE: bool = AMX
# Largest batch for which the hardware prefetchers suffice. On Zen 4 software prefetch makes a
# decoded token 1.05 to 1.15 times slower, with f16 weights 1.4 times.
ALONE: int = 2 if ZEN4 else 0


def computes_longer(width: int) -> bool:
    """Return True if `width` columns are compute-bound, so that prefetching does not pay.

    Zen 4 is an exception: prefetching reduces the time of 12 columns to 0.7 to 0.85.
    """
    return width == TILE and not ZEN4


@fn
def later(at):
    return at + AHEAD


@fn
def in_turn(at):
    """Map a line of a group of PAGES pages to a line of the next group, interleaved by page."""
    page, line = (at >> LINE_BITS) & (PAGES - 1), (at >> LINE_BITS + PAGES_BITS) & (LINES - 1)
    return ((at >> GROUP_BITS) + 1 << GROUP_BITS) | (page << PAGE_BITS) | (line << LINE_BITS)


ahead: Function = in_turn if SIDE_BY_SIDE else later


@fn
def fetch_ahead(at, size):
    """Prefetch `size` bytes ahead of address `at`, for one column."""
    if ALONE < 1:
        for i in range(0, size, LINE):
            v.prefetch(ahead(at + i))


@fn
def _skip(w, i, piece):
    pass


def fetcher(width: int, panel_bytes: int, parts: int, pieces: int = 1) -> Function:
    """Return fetch(w, i, piece): prefetch a piece of part i of the lines ahead of panel block w.

    `width` is the number of columns. Parts and pieces spread the requests over time: a core has few
    line fill buffers and drops most prefetches of a burst.
    """
    if width <= ALONE:
        return _skip
    lines = -(-panel_bytes // LINE)
    most = -(-lines // parts)

    @fn
    def fetch(w, i, piece):
        first = w + LINE * (lines * i // parts)
        for line in range(most * piece // pieces, most * (piece + 1) // pieces):
            v.prefetch(ahead(first + LINE * line))

    return fetch


def slow_fetcher(panel_bytes: int, parts: int) -> Function:
    """Return fetch(w, i): prefetch part i of the lines ahead of panel block w, for one column.

    LLVM does not unroll its loop, so the requests are spread over more time.
    """
    lines = -(-panel_bytes // LINE)

    @fn
    def fetch(w, i):
        if ALONE < 1:
            for line in range(lines * i // parts, lines * (i + 1) // parts):
                v.prefetch(ahead(w + LINE * line))

    return fetch

"""Prefetch of weights, or cells of a cache, while others are multiplied.

What a core that multiplies asks for by itself does not keep memory busy: its prefetchers follow a
stream of reads, but each anew on every page, and the first lines of a page come late. So lines far
ahead are asked for: AHEAD bytes later, or, on CPUs where that is faster, those of PAGES pages at a
time, which the prefetchers then follow side by side. Other prefetchers do well, and better alone.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import AMX, TILE, ZEN4

AHEAD = 8192  # bytes: what memory delivers while it answers, twice
LINE_BITS, PAGE_BITS = 6, 12  # of the bytes of a line and of a page
LINE, LINES = 1 << LINE_BITS, 1 << PAGE_BITS - LINE_BITS  # the latter of a page
PAGES_BITS = 2
PAGES = 1 << PAGES_BITS  # to fetch side by side
GROUP_BITS = PAGES_BITS + PAGE_BITS
# On Xeons with AMX one column of bytes is 1.5 times as fast so, 1.2 times with AHEAD.
SIDE_BY_SIDE: bool = AMX
# Columns that a CPU multiplies as fast as its own prefetchers bring weights: a token that asks for
# lines besides takes 1.05 to 1.15 times as long on Zen 4, with f16 weights 1.4 times.
ALONE: int = 2 if ZEN4 else 0


def computes_longer(width: int) -> bool:
    """Return True if so many columns keep a core busy for longer than memory takes, so that lines
    need not be asked for. On Zen 4 12 columns take 0.7 to 0.85 of the time if they are."""
    return width == TILE and not ZEN4


@fn
def later(at):
    return at + AHEAD


@fn
def in_turn(at):
    """From a line of some pages, in order, to one of the pages after them, of each in turn."""
    page, line = (at >> LINE_BITS) & (PAGES - 1), (at >> LINE_BITS + PAGES_BITS) & (LINES - 1)
    return ((at >> GROUP_BITS) + 1 << GROUP_BITS) | (page << PAGE_BITS) | (line << LINE_BITS)


ahead: Function = in_turn if SIDE_BY_SIDE else later


@fn
def fetch_ahead(at, size):
    """What is ahead of these bytes, for one column."""
    if ALONE < 1:
        for i in range(0, size, LINE):
            v.prefetch(ahead(at + i))


@fn
def _nothing(w, i, piece):
    pass


def fetcher(width: int, panel_bytes: int, parts: int, pieces: int = 1) -> Function:
    """Return fetch(w, i, piece): it asks for a piece of part i of the lines ahead of a block of a
    panel that `width` columns are multiplied with.

    Pieces, because a core has only so many lines under way, and drops most of those that are asked
    for at once.
    """
    if width <= ALONE:
        return _nothing
    lines = -(-panel_bytes // LINE)
    most = -(-lines // parts)

    @fn
    def fetch(w, i, piece):
        first = w + LINE * (lines * i // parts)
        for line in range(most * piece // pieces, most * (piece + 1) // pieces):
            v.prefetch(ahead(first + LINE * line))

    return fetch


def slow_fetcher(panel_bytes: int, parts: int) -> Function:
    """Return fetch(w, i): the same for one column, in a loop that LLVM keeps, so that lines are
    asked for more slowly."""
    lines = -(-panel_bytes // LINE)

    @fn
    def fetch(w, i):
        if ALONE < 1:
            for line in range(lines * i // parts, lines * (i + 1) // parts):
                v.prefetch(ahead(w + LINE * line))

    return fetch

"""Measure resident memory while contexts are created and released, and during a long decode.

    python -m dev.compare.resident [MODEL.gguf] [--contexts 2000] [--tokens 100000] [-c 256]

First N contexts are created, used and released; then one context decodes M tokens. When its KV
cache is full, the older half is removed and the rest is shifted; models that cannot shift positions
start with an empty cache. Reports have the resident memory, its growth since the first report of
the same phase, and the numbers of objects and mappings. Exit code 1 if the last quarter grew by
more than --most MiB.

Each report first returns glibc's freed memory to the system, because glibc retains a varying number
of MiB, which would hide a leak of that size.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import llama_py
from ggml_py.errors import ContextError
from llama_py import Context, Model

LINES = 16  # lines of each test
LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Size:
    """Resident bytes, objects known to the collector, and mapped ranges (0: unknown)."""

    resident: int
    objects: int
    mappings: int

    @staticmethod
    def now() -> Size:
        """Measure after garbage collection, and after glibc has returned its free memory."""
        gc.collect()
        if hasattr(LIBC, "malloc_trim"):
            LIBC.malloc_trim(0)
        maps = Path("/proc/self/maps")
        n = len(maps.read_text("utf-8").splitlines()) if maps.exists() else 0
        return Size(psutil.Process().memory_info().rss, len(gc.get_objects()), n)


@dataclass
class Watch:
    """Sizes along the way."""

    what: str
    total: int
    sizes: list[Size] = field(default_factory=list)

    def look(self, done: int) -> None:
        """Note the size at evenly spaced cases of `total`."""
        if done % max(1, self.total // LINES) and done != self.total:
            return
        now = Size.now()
        self.sizes.append(now)
        grown = (now.resident - self.sizes[0].resident) / 2**20
        print(
            f"{done:8} {self.what}: {now.resident / 2**20:8.1f} MiB resident ({grown:+.2f}),"
            f" {now.objects} objects, {now.mappings} mappings",
            flush=True,
        )

    @property
    def growth(self) -> float:
        """MiB that the last quarter added."""
        return (self.sizes[-1].resident - self.sizes[-1 - len(self.sizes) // 4].resident) / 2**20


def come_and_go(model: Model, n: int, look: Callable[[int], None], n_ctx: int = 256) -> None:
    """Create, use and release contexts; close every second context explicitly."""
    for i in range(1, n + 1):
        ctx = model.context(n_ctx=n_ctx, n_threads=1 + i % 2)
        ctx.decode([1, 2, 3, 4], "none")
        ctx.decode([5])
        if i % 2:
            ctx.close()
        del ctx
        look(i)


def decode_for_long(ctx: Context, n: int, look: Callable[[int], None]) -> None:
    """Decode n tokens of one sequence, one after the other. Each token is the most likely
    one after its predecessor."""
    token = 1
    for i in range(1, n + 1):
        make_room(ctx)
        token = int(ctx.decode([token])[0].argmax())
        look(i)


def make_room(ctx: Context) -> None:
    """Free a cell for one more token."""
    end = ctx.memory.seq_pos_max(0) + 1
    if end < ctx.cparams.n_ctx_seq:
        return
    half = end // 2
    try:
        ctx.memory.seq_add(0, half, -1, 0)  # refused if positions cannot move
        moved = ctx.memory.recr is None and ctx.memory.seq_rm(0, 0, half)
    except ContextError:
        moved = False
    if moved:
        ctx.memory.seq_add(0, half, -1, -half)
    else:
        ctx.memory.seq_rm(0)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("model", nargs="?", help="default: the demo model")
    p.add_argument("--contexts", type=int, default=2000, metavar="N")
    p.add_argument("--tokens", type=int, default=100_000, metavar="M")
    p.add_argument("-c", type=int, default=256, dest="n_ctx", metavar="CELLS")
    p.add_argument("--most", type=float, default=4.0, metavar="MIB")
    args = p.parse_args()
    model = llama_py.load(args.model)
    contexts, tokens = Watch("contexts", args.contexts), Watch("tokens", args.tokens)
    come_and_go(model, args.contexts, contexts.look, args.n_ctx)
    decode_for_long(model.context(n_ctx=args.n_ctx), args.tokens, tokens.look)
    grown = {w.what: w.growth for w in (contexts, tokens) if w.sizes}
    print(", ".join(f"last quarter of {what}: {mib:+.2f} MiB" for what, mib in grown.items()))
    return int(any(mib > args.most for mib in grown.values()))


if __name__ == "__main__":
    sys.exit(main())

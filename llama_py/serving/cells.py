"""Free cells in memory that sequences share."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.decoding.prefix_cache.tree import common
from llama_py.serving.slots import Slot


def free_cells(ctx: Context) -> int:
    """Return the number of free cells; sys.maxsize if each sequence has separate cells."""
    caches = [kv for kv in ctx.memory.caches.values() if kv.window is None]
    shared = [kv for kv in caches if kv.n_stream == 1 < ctx.cparams.n_seq_max]
    return min((kv.kv_size - kv.cells[0].used for kv in shared), default=sys.maxsize)


def put_idle_away(ctx: Context, slots: Sequence[Slot]) -> bool:
    """Release the cells of the least recently used idle sequence; False if all are busy."""
    idle = [s for s in slots if s.job is None and ctx.memory.seq_pos_max(s.id) >= 0]
    if not idle:
        return False
    slot = min(idle, key=lambda slot: slot.used)
    PrefixCache.for_context(ctx).offload(slot.id)
    slot.n_held = 0
    return True


def make_cells(
    ctx: Context, slots: Sequence[Slot], ids: Sequence[int], slot: Slot, n_beyond: int = 0
) -> None:
    """Free cells of idle sequences for a slot's prompt, except the best common prefix.

    n_beyond  cells needed in addition to one per id
    """
    if free_cells(ctx) >= len(ids) + n_beyond:
        return
    there = [common(PrefixCache.for_context(ctx).tokens(s.id), ids) for s in slots]
    most = max(there)
    needed = len(ids) + n_beyond - most
    others = [s for s, n in zip(slots, there, strict=True) if s is not slot and (n < most or not n)]
    while free_cells(ctx) < needed and put_idle_away(ctx, others):
        pass

"""A slot that is used again gives what a fresh one gives, whatever its old state held; and what one
sequence holds never reaches another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend import tensor_bytes
from ggml_py.tensor import Tensor
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.memory.compressed import CompressedMemory
from llama_py.memory.kv import KVCache
from tests.support.graph_models import CONTINUING, FLASH, first_of_each, memory_kinds
from tests.support.live_models import NEVER, live, spoil_keys, tokens

OLD, PROMPT, MORE = tokens(40, seed=1), tokens(9, seed=2), tokens(3, seed=3)
NAN = 0xFF  # these bytes are NaN in every type a cache has


def context(name: str, **options: Any) -> Context:
    return Context(live(name, "cpu"), n_ctx=512, n_seq_max=2, **options)


def decode(ctx: Context, seq_id: int, ids: list[int]) -> NDArray[np.float32]:
    return ctx.decode(Batch(ids, seq_ids=[(seq_id,)] * len(ids)), logits="all")


def spoil(ctx: Context, seq_id: int) -> None:
    """NaN in everything a sequence remembers."""
    mem = ctx.memory
    for kv in mem.caches.values():
        spoil_cells(kv, seq_id)
    if isinstance(mem.recr, CompressedMemory):
        spoil_keys(mem.recr, seq_id)
    elif mem.recr is not None:
        for t in mem.recr.all_tensors():
            rows = tensor_bytes(t).reshape(t.ne[1], -1)
            rows[mem.recr.cells[seq_id].tail :: mem.recr.size] = NAN
            write(t, rows)


def spoil_cells(kv: KVCache, seq_id: int) -> None:
    stream = kv.stream_index(seq_id)
    cells = np.flatnonzero(kv.cells[stream].seq[seq_id])
    for t in (*kv.tensors.k.values(), *kv.tensors.v.values()):
        raw = tensor_bytes(t)
        if kv.tensors.v_trans and t in kv.tensors.v.values():
            raw.reshape(kv.n_stream, -1, kv.kv_size, t.type.type_size)[stream, :, cells] = NAN
        else:
            raw.reshape(kv.n_stream, kv.kv_size, -1)[stream, cells] = NAN
        write(t, raw)


def write(t: Tensor, raw: NDArray[np.uint8]) -> None:
    assert t.buffer is not None
    t.buffer.write(t.offset, raw.reshape(-1))


WAYS = [  # every two of them together
    ("seq_rm", False, "on"),
    ("seq_keep", True, "off"),
    ("seq_rm", True, "on"),
    ("seq_keep", False, "off"),
]
EACH_KIND = first_of_each(memory_kinds, CONTINUING)


def ways(i: int, name: str) -> list[tuple[str, bool, str]]:
    """All of them for the first model of a kind of memory; else two, all of each alone."""
    return WAYS if name in EACH_KIND else [WAYS[i % 2 * 2], WAYS[i % 2 * 2 + 1]]


@pytest.mark.parametrize(
    ("name", "how", "kv_unified", "flash_attn"),
    [(name, *way) for i, name in enumerate(CONTINUING) for way in ways(i, name)],
)
def test_a_reused_slot_is_as_good_as_a_fresh_one(name, how, kv_unified, flash_attn):
    fresh, used = (context(name, kv_unified=kv_unified, flash_attn=flash_attn) for _ in range(2))
    for ctx in (fresh, used):
        decode(ctx, 0, PROMPT)
    decode(used, 1, OLD)
    spoil(used, 1)
    if how == "seq_rm":
        assert used.memory.seq_rm(1)
    else:
        used.memory.seq_keep(0)
    for seq_id, ids in ((1, PROMPT), (0, MORE), (1, MORE)):
        np.testing.assert_array_equal(decode(used, seq_id, ids), decode(fresh, seq_id, ids))


# without flash attention NaN times nothing is NaN
@pytest.mark.parametrize(
    ("name", "kv_unified"),
    [(n, True) for n in FLASH] + [(n, False) for n in first_of_each(memory_kinds, FLASH)],
)
def test_a_broken_sequence_breaks_no_other(name, kv_unified):
    """Both are in one batch, and with kv_unified in the same cells."""
    well, broken = (context(name, kv_unified=kv_unified, flash_attn="on") for _ in range(2))
    turns = [s for _ in MORE for s in (0, 1)]
    batch = [MORE[i // 2] for i in range(len(turns))]
    found = []
    for ctx in (well, broken):
        decode(ctx, 0, PROMPT)
        decode(ctx, 1, OLD)
        if ctx is broken:
            spoil(ctx, 1)
        found.append(ctx.decode(Batch(batch, seq_ids=[(s,) for s in turns]), logits="all"))
    np.testing.assert_array_equal(found[1][::2], found[0][::2])
    spoiled = found[1][1::2]
    assert (np.isnan(spoiled) | (spoiled < NEVER)).all()

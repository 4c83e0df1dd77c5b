"""Cells of caches that are saved and restored."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv import KVCache
from tests.llama_py.test_memory_kv import cache, check, holds, put, randomize


def saved(kv: KVCache, seq_id: int = -1) -> StateReader:
    io = StateWriter()
    kv.state_write(io, seq_id)
    return StateReader(io.bytes())


def rows_of(kv: KVCache, seq_id: int) -> list[bytes]:
    """Bytes of a sequence's rows in all tensors, by position."""
    stream = kv.stream_index(seq_id)
    cells = kv.cells[stream]
    mine = np.flatnonzero(cells.seq[seq_id])
    io = StateWriter()
    for i in mine[np.argsort(cells.pos[mine])]:
        kv.tensors.write_cells(io, stream, np.array([i]))
    return [io.bytes()]


@pytest.mark.parametrize("v_trans", [False, True])
@pytest.mark.parametrize("unified", [True, False])
def test_state_round_trip(v_trans: bool, unified: bool) -> None:
    kv = cache(16, 3, unified, v_trans=v_trans)
    put(kv, [0, 1, 0, 1, 2])
    kv.seq_rm(0, 0, 1)
    put(kv, [1, 1])
    randomize(kv)
    other = cache(32, 3, unified, v_trans=v_trans)
    assert other.layout() == kv.layout()
    put(other, [0, 1, 2])
    other.state_read(saved(kv))
    check(other)
    for s in range(3):
        assert rows_of(other, s) == rows_of(kv, s)
        assert other.seq_pos_max(s) == kv.seq_pos_max(s)
    put(other, [2, 2, 2])
    other.state_read(saved(kv, 1), 2)
    check(other)
    assert rows_of(other, 2) == rows_of(kv, 1)
    assert rows_of(other, 0) == rows_of(kv, 0)


def test_a_state_that_is_too_large() -> None:
    kv = cache(16)
    put(kv, [0] * 10)
    small = cache(8)
    with pytest.raises(ContextError, match=r"10 cells, more than the free .* 8"):
        small.state_read(saved(kv))
    assert holds(small) == []
    check(small)
    with pytest.raises(ContextError, match="2 KV streams like this context, got 1"):
        cache(16, 2, unified=False).state_read(saved(kv))

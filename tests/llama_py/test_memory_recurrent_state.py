"""Recurrent states that are saved and restored."""

from __future__ import annotations

from typing import Any

import pytest

from ggml_py.errors import ContextError
from llama_py.memory.io import StateReader, StateWriter
from tests.llama_py.test_memory_recurrent import check, decode, hybrid, memory, of, state


def saved(mem: Any, seq_id: int = -1, partial: bool = False) -> StateReader:
    io = StateWriter()
    mem.state_write(io, seq_id, partial)
    return StateReader(io.bytes())


def test_state_round_trip() -> None:
    mem = memory(n_rs_seq=2)
    decode(mem, *[2] * 3)
    decode(mem, 0, 0, 0, 0)
    mem.seq_cp(2, 3)
    assert mem.seq_rm(0, 3, -1)  # pending: the state is in a snapshot
    other = memory(n_rs_seq=2)
    decode(other, 1, 0)
    other.state_read(saved(mem))
    check(other)
    assert [other.seq_pos_max(s) for s in range(4)] == [2, -1, 2, 2]
    assert [state(other, s) for s in (0, 2, 3)] == [of(0, 1, 2)] * 3
    assert not other.seq_rm(0, 2, -1)
    decode(other, 1, 1)
    other.state_read(saved(mem, 0), 1)
    decode(other, 1)
    assert state(other, 1) == of(0, 1, 2, 3)
    check(other)


def test_states_that_do_not_fit_are_refused() -> None:
    hyb = hybrid()
    for s in range(4):
        decode(hyb, s)
    small = hybrid(2)
    with pytest.raises(ContextError):
        small.state_read(saved(hyb))
    assert small.seq_pos_max(0) == -1
    assert memory().layout() == memory(2, 3).layout()
    assert hybrid().layout() != memory().layout()


def test_a_checkpoint_leaves_out_the_attention_part() -> None:
    hyb = hybrid()
    decode(hyb, 0, 0)
    whole, part = saved(hyb, 0), saved(hyb, 0, partial=True)
    assert len(part._data) < len(whole._data)
    decode(hyb, 0, 0)
    hyb.state_read(part, 0, partial=True)
    assert (hyb.recr.seq_pos_max(0), hyb.caches["kv"].seq_pos_max(0)) == (1, 3)
    assert hyb.seq_rm(0, 2, -1)
    assert hyb.caches["kv"].seq_pos_max(0) == 1
    decode(hyb, 0)
    assert state(hyb.recr, 0) == of(0, 1, 2)

"""Parts of a memory: every kind obeys the rules of its base class."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from ggml_py.errors import ContextError
from ggml_py.types import F16
from llama_py.batch import Batch, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Window
from llama_py.hparams.variants import SLOTS
from llama_py.memory import MemoryGroup, Placing, create_memory
from llama_py.memory.base import write_part
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.part import MemoryPart
from llama_py.memory.specs import CompressedSpec, Index, KVCacheSpec, MemorySpecs, StateSpec
from llama_py.params import ContextParams
from tests.support.graph_models import load
from tests.support.host_device import HostDevice

N_SEQ = 2
KEPT: dict[str, MemorySpecs] = {
    "keys": (KVCacheSpec(1, 8, 8),),
    "window": (KVCacheSpec(1, 8, 8, Window(64)),),
    "pools": (Index(8, kpool=4),),
    "cells": (StateSpec(3, 5),),
    "slots": (StateSpec(3, 5),),
    "compressed": (CompressedSpec("csa", 4, 8),),
}


@pytest.fixture(params=KEPT)
def group(request: pytest.FixtureRequest) -> MemoryGroup:
    cparams = CParams.resolve(
        load("llama-dense").hparams, ContextParams(n_ctx=512, n_seq_max=N_SEQ)
    )
    if request.param == "slots":
        cparams = replace(cparams, forms=(("delta_net", SLOTS),))
    how = Placing(cparams, lambda _: HostDevice(), F16, F16)
    return create_memory({0: KEPT[request.param]}, how)


def part_of(group: MemoryGroup) -> MemoryPart:
    (part,) = group.parts
    return part


def put(group: MemoryGroup, *seqs: int) -> UBatch:
    """One token for each entry, of that sequence; the ubatch that was applied."""
    batch = Batch([1] * len(seqs), seq_ids=[(s,) for s in seqs])
    splitter = BatchSplitter(batch, n_vocab=8, n_embd=4, n_seq_max=N_SEQ, memory=group)
    ctx = group.init_batch(splitter, 64)
    ctx.apply()
    return ctx.get_ubatch()


def written(part: MemoryPart, seq_id: int = -1) -> bytes:
    io = StateWriter()
    part.state_write(io, seq_id)
    return io.bytes()


def test_every_method_is_documented() -> None:
    for name, member in inspect.getmembers(MemoryPart):
        assert name.startswith("_") or name == "n_rs_seq" or inspect.getdoc(member), name


def test_bytes_are_those_of_the_tensors(group: MemoryGroup) -> None:
    part = part_of(group)
    assert part.all_tensors() == group.tensors()
    assert sum(part.memory_breakdown().values()) >= sum(t.nbytes for t in part.all_tensors()) > 0


def test_sequences_are_removed_and_kept_alone(group: MemoryGroup) -> None:
    part = part_of(group)
    put(group, 0, 0, 0)
    put(group, 1, 1)
    assert [part.seq_pos_max(s) for s in range(N_SEQ)] == [2, 1]
    assert part.seq_rm(1) and part.seq_pos_max(1) == -1
    part.seq_cp(0, 1)
    assert part.seq_pos_max(1) == 2
    part.seq_keep(1)
    assert [part.seq_pos_max(s) for s in range(N_SEQ)] == [-1, 2]
    assert part.seq_rm(-1) and part.seq_pos_max(1) == part.seq_pos_min(1) == -1


def test_last_positions_go_or_nothing_changes(group: MemoryGroup) -> None:
    part = part_of(group)
    put(group, 0, 0, 0)
    goes = part.seq_rm(0, 2)
    assert goes or not part.supports_rollback
    assert part.seq_pos_max(0) == (1 if goes else 2)


def test_a_ubatch_that_was_not_applied_is_not_discarded(group: MemoryGroup) -> None:
    part = part_of(group)
    first = put(group, 0, 0)
    second = put(group, 1, 1)
    assert part.discard(first) == [] and part.seq_pos_max(0) == 1
    lost = part.discard(second)
    assert lost in ([], [1]) and (part.seq_pos_max(0), part.seq_pos_max(1)) == (1, -1)


def test_a_saved_state_is_read_back(group: MemoryGroup) -> None:
    part = part_of(group)
    put(group, 0, 0, 0)
    rng = np.random.default_rng(0)
    for t in part.all_tensors():
        write_part(t, 0, rng.integers(0, 60, t.nbytes, np.uint8))
    saved = written(part, 0)
    part.state_read(StateReader(saved), 1)
    assert part.seq_pos_max(1) == 2
    part.seq_rm(0)
    part.state_read(StateReader(saved), 0)
    assert written(part, 0) == saved
    whole = written(part)
    part.clear()
    assert part.seq_pos_max(0) == part.seq_pos_max(1) == -1
    part.state_read(StateReader(whole))
    assert written(part) == whole


@pytest.mark.parametrize("call", ["seq_rm", "seq_keep", "seq_pos_min", "seq_pos_max"])
def test_another_sequence_is_refused(group: MemoryGroup, call: str) -> None:
    with pytest.raises(ContextError, match=f"seq_id must be in .*got {N_SEQ}"):
        getattr(part_of(group), call)(N_SEQ)

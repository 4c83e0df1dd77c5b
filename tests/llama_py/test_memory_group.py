"""What layers keep decides the parts of a memory: caches side by side, states, nothing at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.backend import get_tensor
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.batch import Batch
from llama_py.batch.splitter import BatchSplitter
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Window
from llama_py.memory import GroupContext, KVCache, MemoryGroup, Placing, create_memory
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv_slots import CellLayout
from llama_py.memory.kv_tensors import KVLayer
from llama_py.memory.recurrent import RecurrentContext
from llama_py.memory.specs import Index, KVCacheSpec, MemorySpecs, SameAs, StateSpec
from llama_py.params import ContextParams
from tests.support.graph_models import load
from tests.support.host_device import HostDevice

DEVICE = HostDevice()
ALL, NEAR, CHUNK = (
    KVCacheSpec(2, 8, 4),
    KVCacheSpec(1, 8, 4, Window(3)),
    KVCacheSpec(1, 8, 4, Window(4, "chunked")),
)


def memory(*kept: MemorySpecs, type_v: Any = F16, **options: Any) -> MemoryGroup:
    """That of a model whose layers keep these."""
    cparams = CParams.resolve(
        load("llama-dense").hparams, ContextParams(**{"n_ctx": 256, **options})
    )
    how = Placing(cparams, lambda _: DEVICE, F16, type_v)
    return create_memory(dict(enumerate(kept)), how)


def place(group: MemoryGroup, *seqs: int, n_ubatch: int = 4) -> GroupContext:
    """A token for each entry, of that sequence; the context stands at the last ubatch."""
    batch = Batch([1] * len(seqs), seq_ids=[(s,) for s in seqs])
    splitter = BatchSplitter(batch, n_vocab=8, n_embd=4, n_seq_max=2, memory=group)
    ctx = group.init_batch(splitter, n_ubatch)
    for i in range(len(ctx.ubatches)):
        if i:
            ctx.next()
        ctx.apply()
    return ctx


class TestParts:
    def test_layers_share_a_cache_with_those_that_see_the_same(self) -> None:
        group = memory((ALL,), (NEAR,), (CHUNK,), (NEAR,), (ALL,))
        names = ["kv", "chunked window 4", "standard window 3"]
        assert list(group.caches) == names
        assert [list(kv.tensors.layers) for kv in group.caches.values()] == [[0, 4], [2], [1, 3]]
        assert [group.init_full().cache_name(il) for il in range(5)] == [
            names[0],
            names[2],
            names[1],
            names[2],
            names[0],
        ]
        assert group.recr is None
        assert [kv.window for kv in group.windows] == [CHUNK.window, NEAR.window]

    def test_a_window_needs_cells_for_itself_and_a_ubatch(self) -> None:
        group = memory((ALL,), (NEAR,), n_ctx=2048, n_ubatch=300)
        assert [kv.kv_size for kv in group.caches.values()] == [2048, 512]

    def test_an_indexer_has_keys_of_its_own(self) -> None:
        group = memory((KVCacheSpec(1, 24, 0), Index(8)), (KVCacheSpec(1, 24, 0),))
        assert [(t.name, t.ne[0]) for t in group.caches["index"].tensors.k.values()] == [
            ("cache_k_l0", 8)
        ]
        assert not group.caches["index"].tensors.v
        assert group.init_full().cache_name(0) == "kv"
        with pytest.raises(
            ContextError, match=r"type_k and type_v must be the same, .* got f16 and f32"
        ):
            memory((KVCacheSpec(1, 24, 0),), type_v=F32)


class TestSameAs:
    def test_a_layer_reads_what_another_keeps(self) -> None:
        group = memory((ALL,), (NEAR,), (SameAs(1),), (SameAs(0),))
        ctx = group.init_full()
        assert [ctx.cache_name(il) for il in (2, 3)] == [ctx.cache_name(il) for il in (1, 0)]
        for il, of in ((2, 1), (3, 0)):
            kv = ctx.kv(ctx.cache_name(il))
            assert kv.get_k(il).view_src is kv.get_k(of).view_src
            assert kv.get_v(il).view_src is kv.get_v(of).view_src

    def test_nothing_more_is_kept(self) -> None:
        alone, shared = memory((ALL,)), memory((ALL,), (SameAs(0),))
        assert shared.memory_breakdown() == alone.memory_breakdown()
        assert shared.layout() == alone.layout()


class TestBothInOneLayer:
    """Keys and values and a state, in two layers."""

    def group(self, **options: Any) -> MemoryGroup:
        return memory((ALL, StateSpec(3, 5)), (ALL, StateSpec(3, 5)), n_seq_max=2, **options)

    def test_parts(self) -> None:
        group = self.group()
        assert list(group.caches) == ["kv"] and group.recr is not None
        assert list(group.caches["kv"].tensors.layers) == list(group.recr.s_l) == [0, 1]
        ctx = place(group, 0, 0)
        assert ctx.kv(ctx.cache_name(1)).get_k(1).ne[0] == 8
        assert ctx.states(RecurrentContext).get_s_l(1).ne[0] == 5

    def test_they_have_the_same_positions(self) -> None:
        group = self.group()
        place(group, 0, 0, 0, 1)
        assert [part.seq_pos_max(0) for part in group.parts] == [2, 2]
        assert not group.seq_rm(0, 1)  # the state cannot go back
        assert [part.seq_pos_max(0) for part in group.parts] == [2, 2]
        assert group.seq_rm(0)
        assert [part.seq_pos_max(s) for s in (0, 1) for part in group.parts] == [-1, -1, 0, 0]

    def test_they_are_saved_together(self) -> None:
        group, other = self.group(), self.group()
        place(group, 0, 0, 0)
        io = StateWriter()
        group.state_write(io, 0)
        other.state_read(StateReader(io.bytes()), 1)
        assert [part.seq_pos_max(1) for part in other.parts] == [2, 2]
        assert group.layout() != memory((ALL,), (ALL,), n_seq_max=2).layout()


class TestNothing:
    def test_a_batch_is_one_ubatch_and_leaves_no_trace(self) -> None:
        group = memory((), ())
        assert not group.parts and not group.memory_breakdown()
        ctx = place(group, *[0, 1] * 5)  # more than n_ubatch: they see each other only here
        assert ctx.get_ubatch().n_tokens == 10
        assert (group.seq_pos_min(0), group.seq_pos_max(0)) == (-1, -1)
        assert group.seq_rm(0, 1, 2) and group.discard(ctx.get_ubatch()) == []
        with pytest.raises(ContextError, match="no recurrent states"):
            ctx.states(RecurrentContext)


def small(kv_size: int, window: Window | None = None) -> KVCache:
    layers = [KVLayer(0, 1, 4, 4, DEVICE)]
    return KVCache(layers, CellLayout(kv_size, 2, unified=True, window=window))


class TestTwoWindowsAtOnce:
    """Beside a cache that keeps everything, one of the last 3 and one of chunks of 4."""

    def group(self) -> MemoryGroup:
        caches = {"all": small(64), "near": small(10, Window(3))}
        return MemoryGroup({**caches, "chunk": small(12, Window(4, "chunked"))}, None, {})

    def test_every_token_sees_what_its_window_says(self) -> None:
        group = self.group()
        for _ in range(9):
            ctx = place(group, 0, 0)
            first, ubatch = group.seq_pos_max(0) - 1, ctx.get_ubatch()
            for name, kv in group.caches.items():
                part = ctx.kv(name)
                mask = Tensor(F32, (kv.kv_size, 2))
                mask.buffer = DEVICE.alloc(mask.nbytes)
                part.set_input_kq_mask(mask, ubatch, True)
                rows = get_tensor(mask)[0, 0] == 0
                for pos, row in zip((first, first + 1), rows, strict=True):
                    seen = sorted(kv.cells[0].pos[row].tolist())
                    start = {"all": 0, "near": max(pos - 2, 0), "chunk": pos // 4 * 4}[name]
                    assert seen == list(range(start, pos + 1)), (name, pos)

    def test_what_is_out_of_sight_is_forgotten(self) -> None:
        group = self.group()
        for _ in range(20):
            place(group, 0)
        starts = {name: kv.seq_pos_min(0) for name, kv in group.caches.items()}
        assert starts["all"] == 0 < starts["near"] and starts["chunk"] > 0
        assert group.seq_pos_min(0) == max(starts.values())
        assert {kv.seq_pos_max(0) for kv in group.caches.values()} == {19}

    def test_both_windows_must_be_there_to_go_back(self) -> None:
        group = self.group()
        for _ in range(20):
            place(group, 0)
        assert not group.seq_rm(0, 6)
        assert {kv.seq_pos_max(0) for kv in group.caches.values()} == {19}
        assert group.seq_rm(0, 19)
        place(group, 0)
        assert {kv.seq_pos_max(0) for kv in group.caches.values()} == {19}

    def test_a_batch_that_fits_one_cache_only_changes_none(self) -> None:
        group = self.group()
        place(group, *[0] * 6)
        before = {name: kv.cells[0].pos.copy() for name, kv in group.caches.items()}
        with pytest.raises(ContextError, match="does not fit"):
            place(group, *[0] * 11, n_ubatch=11)
        for name, kv in group.caches.items():
            np.testing.assert_array_equal(kv.cells[0].pos, before[name])

    def test_they_are_saved_together(self) -> None:
        group, other = self.group(), self.group()
        place(group, *[0] * 10)
        io = StateWriter()
        group.state_write(io, 0)
        other.state_read(StateReader(io.bytes()), 1)
        all_cells = (kv.cells[0] for kv in other.caches.values())
        kept = [sorted(cells.pos[cells.seq[1]].tolist()) for cells in all_cells]
        assert kept == [[*range(10)], [7, 8, 9], [8, 9]]

    def test_a_state_that_is_read_takes_no_cell_that_another_sees(self) -> None:
        """Cells out of sight are used again, and are then nobody else's."""
        group, other, io = self.group(), self.group(), StateWriter()
        place(other, *[0] * 3)
        other.state_write(io, 0)
        place(group, *[1] * 10)  # one window is full of what is mostly out of sight
        group.state_read(StateReader(io.bytes()), 0)
        for kv in group.caches.values():
            (cells,) = kv.cells
            assert not cells.seq.all(0).any() and (cells.n_seq == cells.seq.sum(0)).all()
            assert cells.used == np.count_nonzero(cells.pos >= 0)
        assert (group.seq_pos_max(0), group.seq_pos_max(1)) == (2, 9)

    def test_the_last_cell_of_a_sequence_stays(self) -> None:
        """At the end of a chunk the next token sees none of it, but the sequence goes on there."""
        group = MemoryGroup({"chunk": small(8, Window(4, "chunked"))}, None, {})
        place(group, *[0] * 4)
        for n in range(1, 9):
            place(group, 1)
            assert (group.seq_pos_max(0), group.seq_pos_max(1)) == (3, n - 1)


class TestSeqTake:
    """The first positions of a sequence for another, as far as they are kept by token."""

    @pytest.mark.parametrize("unified", [False, True])
    def test_states_and_windows_are_left_out(self, unified: bool) -> None:
        group = memory((ALL, StateSpec(3, 5)), (NEAR,), n_seq_max=2, kv_unified=unified)
        place(group, *[0] * 6)
        place(group, 1, 1)
        group.seq_copy_prefix(0, 1, 4)
        base = group.caches["kv"]
        assert [part.seq_pos_max(1) for part in group.parts] == [3, -1, -1]
        assert [part.seq_pos_max(0) for part in group.parts] == [5, 5, 5]
        shared = base.cells[0].seq.all(0).sum()
        assert shared == (4 if unified else 0)


def test_a_copy_that_a_cache_refuses_changes_no_state() -> None:
    group = memory((ALL, StateSpec(3, 5)), (ALL,), n_seq_max=2)
    place(group, 0, 0, 0)
    with pytest.raises(ContextError, match="needs kv_unified=True"):
        group.seq_cp(0, 1, 0, 2)
    assert [part.seq_pos_max(1) for part in group.parts] == [-1, -1]


def test_what_is_intact_is_known() -> None:
    group = memory((ALL,), (ALL,), n_seq_max=2)
    place(group, *[0] * 6, n_ubatch=8)
    group.intact = {0: 99, 1: 99}
    assert group.seq_rm(0, 4) and group.intact == {0: 4, 1: 99}
    place(group, 0)  # what follows does not count
    group.seq_add(0, 2, 4, 1)
    assert group.intact == {0: 2, 1: 2}  # cells may be shared
    group.seq_cp(0, 1)
    assert group.intact == {0: 2, 1: 0}
    group.intact = {0: 99, 1: 99}
    group.seq_keep(0)
    assert group.intact == {0: 99, 1: 0}
    group.clear()
    assert group.intact == {0: 0, 1: 0}

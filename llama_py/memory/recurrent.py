"""Recurrent memory: one state per sequence, copied on write, with snapshots to roll back to
(llama-memory-recurrent.cpp)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.batch import END, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory.base import (
    LayerKey,
    allocate,
    key_name,
    layer_list,
    log,
    mib,
    read_part,
    write_part,
    zero_row,
)
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.joined import Whole, read_row, write_row
from llama_py.memory.part import StateWalk, check_seqs
from llama_py.memory.recurrent_slots import RecurrentSlots
from llama_py.memory.specs import StateSpec


class StateLayer(NamedTuple):
    """A layer with states, or a device's part of the layer."""

    il: int
    device: Device
    state: StateSpec

    @property
    def key(self) -> LayerKey:
        part = self.state.part
        return self.il if part is None else (self.il, part)


class RecurrentMemory(RecurrentSlots):
    """`cache_r_l%d` [n_embd_r, rows] and `cache_s_l%d` [n_embd_s, rows], F32, one row per sequence
    (llama_memory_recurrent); if devices share a layer, each has `cache_r_l%d.%d`. A layer with a
    second convolution also has `cache_ple_r_l%d` [n_embd_p, rows].

    rows = size * (1 + n_rs_seq): group g of size rows holds the states of g tokens back. A ubatch
    with T tokens of a sequence writes T - 1 such states.
    """

    any_order = True

    def __init__(
        self, layers: Sequence[StateLayer], *, size: int, n_rs_seq: int = 0, causal: bool = True
    ) -> None:
        super().__init__(size, n_rs_seq, causal)
        self.layers = layers
        self.r_l: dict[LayerKey, Tensor] = {}
        self.s_l: dict[LayerKey, Tensor] = {}
        self.p_l: dict[LayerKey, Tensor] = {}
        rows = size * (1 + n_rs_seq)
        placed: list[tuple[Device, Tensor]] = []
        for layer in layers:
            key, state = layer.key, layer.state
            name = key_name(key)
            self.r_l[key] = Tensor(F32, (state.n_embd_r, rows)).set_name(f"cache_r_l{name}")
            self.s_l[key] = Tensor(F32, (state.n_embd_s, rows)).set_name(f"cache_s_l{name}")
            placed += [(layer.device, self.r_l[key]), (layer.device, self.s_l[key])]
            if state.n_embd_p:
                p = Tensor(F32, (state.n_embd_p, rows)).set_name(f"cache_ple_r_l{name}")
                self.p_l[key] = p
                placed.append((layer.device, p))
        told_as = "llama_memory_recurrent: %10s RS"
        self.buffers = allocate("recurrent memory", told_as, placed)
        r, s = mib([*self.r_l.values(), *self.p_l.values()]), mib(self.s_l.values())
        log.info(
            "llama_memory_recurrent: size = %7.2f MiB (%6d cells, %3d layers, %2d seqs %2d rs_seq),"
            " R (f32): %7.2f MiB, S (f32): %7.2f MiB, rollback: %7.2f MiB",
            r + s,
            size,
            len({x.il for x in layers}),
            size,
            n_rs_seq,
            r,
            s,
            (r + s) * n_rs_seq / (1 + n_rs_seq),
        )

    def all_tensors(self) -> list[Tensor]:
        """Return the non-empty state tensors: some models have only one type of state."""
        return [t for t in self._state_tensors() if t.n_elements]

    def _state_tensors(self) -> Iterator[Tensor]:
        for states in (self.r_l, self.s_l, self.p_l):
            yield from states.values()

    def _whole_rows(self) -> Iterator[Whole]:
        """Yield the parts of each layer's row, and the sizes of their sections in bytes."""
        for states, of in ((self.r_l, "r"), (self.s_l, "s"), (self.p_l, "")):
            for _, parts in groupby(self.layers, lambda layer: layer.il):
                found = [
                    (states[x.key], x.state)
                    for x in parts
                    if x.key in states and states[x.key].n_elements
                ]
                if found:
                    sections = [
                        [4 * n for n in (getattr(s, f"{of}_sections") if of else ())] or [t.nb[1]]
                        for t, s in found
                    ]
                    yield [t for t, _ in found], sections

    def split(self, splitter: BatchSplitter, n_ubatch: int, sequential: bool) -> UBatch | None:
        """Return the next ubatch, of sequences of equal length."""
        return splitter.split_equal(n_ubatch, sequential, self.n_tail)

    def place(self, ubatches: list[UBatch]) -> RecurrentContext:
        """Find rows for all ubatches; ContextError and no change if they do not fit."""
        self.prepare(ubatches)
        return RecurrentContext(self, ubatches)

    def init_full(self, n_seqs: int | None = None) -> RecurrentContext:
        return RecurrentContext(self, [], full=True)

    def apply_ubatch(self, ubatch: UBatch) -> None:
        super().apply_ubatch(ubatch)
        if self.rs_z >= 0:
            zero_row(self.all_tensors(), self.rs_z)

    def _copy_rows(self, rows: list[tuple[int, int]]) -> None:
        for t in self.all_tensors() if rows else []:
            states = [read_part(t, old * t.nb[1], t.nb[1]) for old, _ in rows]
            for (_, new), state in zip(rows, states, strict=True):
                write_part(t, new * t.nb[1], state)

    def layout(self) -> str:
        layers = layer_list(x.il for x in self.layers)
        row = sum(t.ne[0] for t in self._state_tensors())
        return f"recurrent [{layers}] {row}"

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        chosen = [
            i for i, c in enumerate(self.cells) if c.seq_id and (seq_id < 0 or seq_id in c.seq_id)
        ]
        io.count(len(chosen))
        for i in chosen:
            cell = self.cells[i]
            seqs = sorted(cell.seq_id) if seq_id < 0 else [seq_id]
            io.count(cell.pos)
            io.array(np.array(seqs, np.int32))
            row = self.rs_idx[seqs[0]] * self.size + i
            write_row(io, self._whole_rows(), row)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        if seq_id < 0:
            self.clear()
        else:
            self.seq_rm(seq_id)
        for _ in range(io.count()):
            pos = io.count()
            seqs = [int(s) for s in io.array(np.int32)] if seq_id < 0 else [seq_id]
            if seq_id >= 0:
                io.array(np.int32, 1)
            check_seqs(self.size, *seqs)
            self._restore(io, pos, seqs)

    def _restore(self, io: StateReader, pos: int, seqs: list[int]) -> None:
        taken = [s for s in seqs if self.cells[s].tail >= 0]
        if taken or not seqs or pos >= END:
            raise ContextError(
                f"the state is damaged: position {pos} or sequences {taken or seqs} are invalid; "
                "save it again"
            )
        i = self._next_empty(self.head)
        read_row(io, self._whole_rows(), i)
        cell = self.cells[i]
        cell.pos, cell.src, cell.n_back, cell.seq_id = pos, i, 0, set(seqs)
        for s in seqs:
            self.cells[s].tail = i
            self.rs_idx[s] = 0
        self.used += 1


class RecurrentContext(StateWalk):
    """A batch's ubatches in a recurrent memory (llama_memory_recurrent_context)."""

    keeps = "recurrent states in cells"
    mem: RecurrentMemory

    def __init__(self, mem: RecurrentMemory, ubatches: list[UBatch], full: bool = False) -> None:
        super().__init__(mem, ubatches)
        self.full = full

    @property
    def is_settled(self) -> bool:
        return self.mem.is_settled(self.get_ubatch())

    def follow(self, ubatch: UBatch) -> None:
        self.mem.follow(ubatch)

    def get_n_rs(self) -> int:
        """Return the number of states the graph reads: the ubatch's, and states that must move."""
        return self.mem.size if self.full else self.mem.n

    def get_head(self) -> int:
        """Return the first row that the graph writes."""
        return 0 if self.full else self.mem.head

    def get_rs_z(self) -> int:
        """Return the row that the graph zeroes for new sequences; -1: no row."""
        return 0 if self.full else self.mem.rs_z

    def get_size(self) -> int:
        """Return the number of rows of a group."""
        return self.mem.size

    def get_r_l(self, il: int) -> Tensor:
        return self.mem.r_l[self._key(il)]

    def get_s_l(self, il: int) -> Tensor:
        return self.mem.s_l[self._key(il)]

    def get_p_l(self, il: int) -> Tensor:
        return self.mem.p_l[self._key(il)]

    def s_copy(self, i: int) -> int:
        """Return the source row of state head + i."""
        return self.mem.rows[i]

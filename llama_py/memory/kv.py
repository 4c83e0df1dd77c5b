"""KV cache: tensors, cells, and the ubatches of a batch (llama-kv-cache.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.backend import set_tensor
from ggml_py.errors import ContextError
from ggml_py.ops import view_2d
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F16, I64
from llama_py.batch import END, I32, Index, UBatch
from llama_py.memory.base import log, mib
from llama_py.memory.cache_types import can_rewrite
from llama_py.memory.cells import Bools, Indices, KVCells
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv_rot import Rotation
from llama_py.memory.kv_slots import CellLayout, Forgotten, KVSlots, SlotInfo
from llama_py.memory.kv_tensors import F16_ROWS, KVLayer, KVTensors, RowLayout
from llama_py.memory.mask import MaskRule, kq_mask
from llama_py.memory.ubatch_cursor import UBatchCursor

N_KV_STEP = 256  # n_kv grows in steps, so that graphs can be reused


def in_steps(n: int) -> int:
    """Round n up to a multiple of N_KV_STEP, at least one step."""
    return max(N_KV_STEP, -(-n // N_KV_STEP) * N_KV_STEP)


class KVCache(KVSlots):
    """Keys and values of all tokens of all sequences (llama_kv_cache).

    scored    keys of indexers
    rotated   rotate keys of any type: whole keys of indexers, others in blocks
    """

    any_order = True

    def __init__(
        self,
        layers: Sequence[KVLayer],
        cells: CellLayout,
        rows: RowLayout = F16_ROWS,
        *,
        scored: bool = False,
        rotated: bool = False,
    ) -> None:
        # tensors first: they are refused if they are too large for the device
        self.tensors = KVTensors(layers, cells.kv_size, cells.n_stream, rows)
        self.buffers = self.tensors.buffers
        super().__init__(cells)
        k, v = (mib(d.values()) for d in (self.tensors.k, self.tensors.v))
        n_layers = len({layer.il for layer in layers})
        log.info(
            "llama_kv_cache: size = %7.2f MiB (%6d cells, %3d layers, %2d/%d seqs), K (%s): %7.2f"
            " MiB, V (%s): %7.2f MiB",
            k + v,
            self.kv_size,
            n_layers,
            self.n_seq_max,
            self.n_stream,
            rows.type_k.name,
            k,
            rows.type_v.name,
            v,
        )
        whole = scored and rotated
        self.rotation = Rotation(layers, rows.type_k, rows.type_v, whole_keys=whole, always=rotated)
        self.scored = scored

    def all_tensors(self) -> list[Tensor]:
        return [*self.tensors.list_tensors()]

    def place(self, ubatches: list[UBatch]) -> KVCacheContext:
        """Find cells for all ubatches; ContextError and no change if they do not fit."""
        return KVCacheContext(self, self.prepare(ubatches), ubatches)

    def init_full(self, n_seqs: int | None = None) -> KVCacheContext:
        streams = list(range(min(self.n_stream, n_seqs or self.n_stream)))
        return KVCacheContext(self, [SlotInfo(streams, [])], [])

    def get_n_kv(self, place: SlotInfo) -> int:
        """Return the number of cells that attention reads: the used range, rounded up to 256."""
        return self.pad_n_kv(max(self.cells[stream].used_max_p1() for stream in place.strm))

    def pad_n_kv(self, n_used: int) -> int:
        return min(self.kv_size, in_steps(n_used))

    def copy_stream(self, src: int, dst: int) -> None:
        self.tensors.copy_stream(src, dst)

    def stream_bytes(self, seq_id: int) -> int:
        """Return the bytes of the cells in use in a sequence's stream."""
        row = sum(t.nb[2] // self.kv_size for t in self.all_tensors())
        return self.cells[self.stream_index(seq_id)].used_max_p1() * row

    def swap_streams(self, a: int, b: int, n: int) -> None:
        self.tensors.swap_streams(a, b, n)

    def wipe(self, stream: int, cells: Indices) -> None:
        """Zero freed cells that attention reads although hidden (without flash attention, or
        scored): NaN must not remain there."""
        if (self.tensors.v_trans or self.scored) and cells.size:
            self.tensors.zero_cells(stream, cells)

    def check_shift(self, what: str, within: bool = False) -> None:
        super().check_shift(what, within)
        type_k, layers = self.tensors.type_k, self.tensors.layers.values()
        devices = {layer.device for layer in layers if layer.rope is not None}
        fixed = [device.name for device in devices if not can_rewrite(device, type_k)]
        if fixed:
            names = ", ".join(sorted(fixed))
            raise ContextError(
                f"{what}: {type_k} keys cannot be moved on {names}; use another type_k (-ctk), such"
                " as f16"
            )

    def layout(self) -> str:
        return self.tensors.layout()

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        streams = self.streams if seq_id < 0 else [self.stream_index(seq_id)]
        io.count(len(streams))
        for stream in streams:
            self._write(io, stream, seq_id, self._cells_to_save(self.cells[stream], seq_id))

    def _write(self, io: StateWriter, stream: int, seq_id: int, chosen: Indices) -> None:
        cells = self.cells[stream]
        seqs = cells.seq if seq_id < 0 else cells.seq[seq_id : seq_id + 1]
        io.array(cells.pos[chosen])
        io.array(seqs[:, chosen])
        if cells.xy is not None:
            io.array(cells.xy[:, chosen])
        if cells.ids is not None:
            io.array(cells.ids[chosen])
        if chosen.size:
            self.tensors.write_cells(io, stream, chosen)

    def _cells_to_save(self, cells: KVCells, seq_id: int) -> Indices:
        if seq_id < 0:
            return np.flatnonzero(cells.pos >= 0)
        mine = cells.seq[seq_id].copy()
        if self.window is not None:
            mine &= ~self.window.hides(cells.pos, cells.pos_range(seq_id)[1])
        return np.flatnonzero(mine)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        n, expected = io.count(), self.n_stream if seq_id < 0 else 1
        if n != expected:
            raise ContextError(
                f"the state must have {expected} KV streams like this context, got {n}"
            )
        if seq_id < 0:
            self.clear()
        else:
            self.seq_rm(seq_id)
        for stream in self.streams if seq_id < 0 else [self.stream_index(seq_id)]:
            self._read(io, stream, seq_id)

    def _read(self, io: StateReader, stream: int, seq_id: int) -> None:
        pos = io.array(np.int32)
        n_seq = self.n_seq_max if seq_id < 0 else 1
        seqs = io.array(np.bool_, n_seq * pos.size).reshape(n_seq, pos.size)
        xy = io.array(np.int32, 2 * pos.size).reshape(2, -1) if self.n_pos >= 3 else None
        with_ids = self.cells[stream].ids is not None
        ids = io.array(np.int32, pos.size) if with_ids else None
        if not pos.size:
            return
        idxs = self._restore(io, stream, seq_id, pos, seqs)
        cells = self.cells[stream]
        if cells.xy is not None and xy is not None:
            cells.xy[:, idxs] = xy
        if cells.ids is not None and ids is not None:
            cells.ids[idxs] = ids

    def seq_copy_prefix(self, src: int, dst: int, n: int) -> None:
        """Copy the first n positions of src to dst, which is empty: share the cells, or copy them
        to a separate stream, which has enough free cells."""
        if self.stream_index(src) == self.stream_index(dst):
            self.seq_cp(src, dst, 0, n)
            return
        cells, io = self.cells[self.stream_index(src)], StateWriter()
        chosen = np.flatnonzero(cells.seq[src] & cells.cells_in_range(0, n))
        self._write(io, self.stream_index(src), src, chosen)
        self._read(StateReader(io.bytes()), self.stream_index(dst), dst)

    def _restore(self, io: StateReader, stream: int, seq_id: int, pos: I32, seqs: Bools) -> Indices:
        """Read a state's cells back and return them in the order written."""
        idxs = self.find_cells(stream, pos.size)
        if idxs is None:
            raise ContextError(
                f"the state has {pos.size} cells, more than the free cells of this context of "
                f"{self.kv_size}; use a larger n_ctx, or clear"
            )
        idxs = np.sort(idxs)  # the order rows are written in
        for s, p1 in self._overwritten(self.cells[stream], idxs):
            self.cells[stream].seq_rm(s, 0, p1)
        self.tensors.read_cells(io, stream, idxs)
        by_seq: list[tuple[int, Index]] = [
            (s if seq_id < 0 else seq_id, np.flatnonzero(row))
            for s, row in enumerate(seqs)
            if row.any()
        ]
        self.cells[stream].place(idxs, pos, by_seq)
        self.cells[stream].repeats |= np.unique(pos).size < pos.size
        return idxs


class KVCacheContext(UBatchCursor):
    """A batch's ubatches in a KV cache; while a graph is built and set, the current one's place."""

    def __init__(self, kv: KVCache, places: list[SlotInfo], ubatches: list[UBatch]) -> None:
        self.kv = kv
        self.places = places
        super().__init__(ubatches)
        self._n_kv = kv.kv_size
        self._n_pos: int | None = kv.kv_size  # None: not computed for this ubatch
        self._found: tuple[SlotInfo, Forgotten] | None = None  # next ubatch's; None: at the head

    def as_if(self, n_used: int) -> None:
        """Set `n_used` cells and positions as in use, to measure a graph."""
        self._n_kv = self.kv.pad_n_kv(n_used)
        self._n_pos = in_steps(n_used)

    def apply(self) -> None:
        self.kv.apply_ubatch(self.place, self.get_ubatch())
        self._n_kv = self.kv.get_n_kv(self.place)
        self._n_pos = None

    @property
    def is_settled(self) -> bool:
        return True

    def count_room(self, ubatch: UBatch) -> int:
        left = END if self._n_pos is None else self._n_pos - max(ubatch.pos.tolist())
        place = self.kv.find_slot(ubatch)
        if left <= 0 or place is None:
            return 0
        forgotten = self.kv.overwritten(place)
        self._found = place, forgotten
        used = (
            self.kv.cells[stream].used_max(idx, gone)
            for stream, idx, gone in zip(place.strm, place.idxs, forgotten, strict=True)
        )
        if self.kv.pad_n_kv(max(used)) != self._n_kv:
            return 0
        if ubatch.n_tokens > 1 or any(forgotten):
            return 1
        return min(left, self.kv.count_at_head(place, self._n_kv))

    def follow(self, ubatch: UBatch) -> None:
        if self._found is None:
            self.kv.take_head(ubatch, self.place)
            return
        (self.places[self._i], forgotten), self._found = self._found, None
        self.kv.follow(ubatch, self.place, forgotten)

    @property
    def place(self) -> SlotInfo:
        return self.places[self._i]

    @property
    def has_values(self) -> bool:
        """True if values are stored separately from keys."""
        return bool(self.kv.tensors.v)

    def get_n_kv(self) -> int:
        return self._n_kv

    def get_n_pos(self) -> int:
        """Return the number of positions that attention reads: all sequences', in steps."""
        if self._n_pos is None:
            last = max(self.kv.seq_pos_max(s) for s in range(self.kv.n_seq_max))
            self._n_pos = in_steps(last + 1)
        return self._n_pos

    def sequence_cells(self, ubatch: UBatch) -> list[tuple[int, KVCells]]:
        """Return, for each equal part of the ubatch, its first sequence and the cells that it
        attends to."""
        step = ubatch.n_tokens // len(self.place.strm)
        return [
            (ubatch.seq_id[i * step][0], self.kv.cells[s]) for i, s in enumerate(self.place.strm)
        ]

    def get_k(self, il: int) -> Tensor:
        """Return the keys of a layer, [n_embd_head_k, n_head_kv, n_kv, n_stream]."""
        return self.kv.tensors.get_k(self._key(il), self._n_kv, self.place.s0, self.place.n_stream)

    def get_k_rows(self, il: int, n: int, first: int = 0) -> Tensor:
        """Return n dimensions, from `first` on, of all cells' keys as a view [n, cells]."""
        k = self.kv.tensors.k[self._key(il)]
        return view_2d(k, n, k.ne[1] * k.ne[2], k.nb[1], k.type.row_size(first))

    def get_v(self, il: int) -> Tensor:
        """Return the values of a layer, [n_embd_head_v, n_head_kv, n_kv, n_stream];
        without flash attention transposed: [n_kv, n_head_kv, n_embd_head_v, n_stream]."""
        return self.kv.tensors.get_v(self._key(il), self._n_kv, self.place.s0, self.place.n_stream)

    def cpy_k(self, k_cur: Tensor, k_idxs: Tensor, il: int) -> Tensor:
        return self.kv.tensors.cpy_k(k_cur, k_idxs, self._key(il))

    def cpy_v(self, v_cur: Tensor, v_idxs: Tensor, il: int) -> Tensor:
        return self.kv.tensors.cpy_v(v_cur, v_idxs, self._key(il))

    def build_input_k_idxs(self, ubatch: UBatch) -> Tensor:
        """Create the input I64 [n_tokens] with the cache row of each token."""
        return _input("attn_inp_k_idxs", ubatch.n_tokens)

    def build_input_v_idxs(self, ubatch: UBatch) -> Tensor:
        """Create the input I64 [n_tokens], or [n_tokens * n_embd_v_gqa] for a transposed V."""
        t = self.kv.tensors
        return _input("attn_inp_v_idxs", ubatch.n_tokens * (t.n_embd_v_max if t.v_trans else 1))

    def set_input_k_idxs(self, dst: Tensor, ubatch: UBatch) -> None:
        set_tensor(dst, self.rows())

    def set_input_v_idxs(self, dst: Tensor, ubatch: UBatch) -> None:
        t = self.kv.tensors
        if not t.v_trans:
            set_tensor(dst, self.rows())
            return
        channels = np.arange(t.n_embd_v_max) * t.kv_size
        parts = [
            (stream * t.kv_size * t.n_embd_v_max + idx)[:, None] + channels
            for stream, idx in zip(self.place.strm, self.place.idxs, strict=True)
        ]
        set_tensor(dst, np.concatenate(parts))

    def rows(self) -> Indices:
        """Return the cache rows of the ubatch's tokens, [n_tokens]."""
        place = self.place
        if place.strm == [0]:
            return place.idxs[0]
        pairs = zip(place.strm, place.idxs, strict=True)
        return np.concatenate([stream * self.kv.kv_size + idx for stream, idx in pairs])

    def set_input_kq_mask(
        self, dst: Tensor, ubatch: UBatch, causal: bool, alibi: bool = False, spans: bool = False
    ) -> None:
        """Fill the mask [n_kv, n_tokens / n_stream, 1, n_stream] by `MaskRule`."""
        rule = MaskRule(causal, self.kv.window, alibi, spans)
        streams = [self.kv.cells[s] for s in self.place.strm]
        set_tensor(dst, kq_mask(rule, dst.type is F16, dst.ne[0], ubatch, streams))

    def build_input_k_rot(self) -> Tensor | None:
        return self.kv.rotation.build_input("attn_inp_k_rot", self.kv.rotation.n_k)

    def build_input_v_rot(self) -> Tensor | None:
        return self.kv.rotation.build_input("attn_inp_v_rot", self.kv.rotation.n_v)

    def set_input_rot(self, dst: Tensor) -> None:
        self.kv.rotation.set_input(dst)


def _input(name: str, n: int) -> Tensor:
    t = Tensor(I64, (n,), name=name)
    t.flags |= FLAG_INPUT
    return t

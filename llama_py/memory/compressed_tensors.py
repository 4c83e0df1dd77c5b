"""The tensors of one kind of compressed keys, and their use by graphs
(llama-kv-cache-dsv4.cpp:llama_dsv4_comp_state)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggml_py.backend import Buffer, Device
from ggml_py.ops import set_rows, view
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py.memory.base import allocate, read_part, write_part
from llama_py.memory.compressed_plan import N_KEYS_STEP, CompressedLayout
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv_rot import Rotation
from llama_py.memory.kv_tensors import KVLayer, KVTensors, RowLayout
from llama_py.memory.specs import CompressedSpec

Layers = Sequence[tuple[int, Device]]  # number, and device of its keys and states


class CompressedTensors:
    """Tensors of compressed keys: `cache_k_l%d` [n_embd_head, n_keys, n_stream], and states
    `dsv4_csa_state_kv_l%d` and `dsv4_csa_state_score_l%d` F32
    [n_embd_state, n_tokens, planes * n_stream], the first plane being the current states."""

    def __init__(
        self,
        kept: CompressedSpec,
        layers: Layers,
        *,
        n_ctx: int,
        n_stream: int,
        n_rs_seq: int,
        type_k: GGMLType,
    ) -> None:
        n_keys = max(1, -(-n_ctx // kept.ratio))
        n_keys = -(-n_keys // N_KEYS_STEP) * N_KEYS_STEP
        self.kept, self.sizes = kept, CompressedLayout(kept, n_keys, n_stream, n_rs_seq)
        kv = [KVLayer(il, 1, kept.n_embd_head, 0, on) for il, on in layers]
        self.keys = KVTensors(kv, n_keys, n_stream, RowLayout(type_k, type_k))
        self.rotation = Rotation(kv, type_k, type_k, always=kept.rotated)
        self.kv: dict[int, Tensor] = {}
        self.score: dict[int, Tensor] = {}
        ne = kept.n_embd_state, kept.n_tokens, n_stream * (1 + n_rs_seq)
        placed: list[tuple[Device, Tensor]] = []
        for il, on in layers:
            for of, name in ((self.kv, "kv"), (self.score, "score")):
                of[il] = Tensor(F32, ne).set_name(f"dsv4_{kept.kind}_state_{name}_l{il}")
                placed.append((on, of[il]))
        told_as = f"llama_dsv4_comp_state: %10s {kept.kind}"
        self._states = allocate("states of compressed keys", told_as, placed)

    @property
    def buffers(self) -> list[tuple[Device, Buffer]]:
        return [*self.keys.buffers, *self._states]

    def states(self) -> list[Tensor]:
        return [*self.kv.values(), *self.score.values()]

    def get_k(self, il: int, s0: int, n_stream: int) -> Tensor:
        """Return all keys of `n_stream` sequences from s0: [n_embd_head, 1, n_keys, n_stream]."""
        return self.keys.get_k(il, self.sizes.n_keys, s0, n_stream)

    def get_state(self, t: Tensor) -> Tensor:
        """Return all rows of a layer's `kv` or `score` as a view [n_embd_state, rows]."""
        return view(t, (t.ne[0], t.ne[1] * t.ne[2]))

    def set_state(self, t: Tensor, rows: Tensor, idxs: Tensor) -> Tensor:
        """Put rows [n_embd_state, n] there."""
        return set_rows(self.get_state(t), rows, idxs)

    def begin(self, seq_id: int, n_dirty: int) -> None:
        """Zero a sequence's states, the keys of its first n_dirty tokens, and the last key, which
        unused keys are written to."""
        n_keys = min(-(-n_dirty // self.kept.ratio), self.sizes.n_keys - 1)
        rows = np.append(np.arange(n_keys), self.sizes.n_keys - 1)
        self.keys.zero_cells(seq_id, rows)
        for plane in range(1 + self.sizes.n_rs_seq):
            for t in self.states():
                at = (plane * self.sizes.n_stream + seq_id) * t.nb[2]
                write_part(t, at, np.zeros(t.nb[2], np.uint8))

    def copy(self, src: int, dst: int, plane: int, n: int) -> None:
        """Copy the keys of src's first n tokens, and its state, which is in a plane, to dst."""
        self.copy_keys(src, dst, n)
        for t in self.states():
            at = (plane * self.sizes.n_stream + src) * t.nb[2]
            write_part(t, dst * t.nb[2], read_part(t, at, t.nb[2]))

    def copy_keys(self, src: int, dst: int, n: int) -> None:
        """Copy the keys of the first n tokens from `src` to `dst`."""
        for t in self.keys.list_tensors() if n >= self.kept.ratio else ():
            data = read_part(t, src * t.nb[2], n // self.kept.ratio * t.nb[1])
            write_part(t, dst * t.nb[2], data)

    def write_keys(self, io: StateWriter, seq_id: int, n: int) -> None:
        """Write the keys of a sequence's first n tokens to a saved state."""
        rows = np.arange(n // self.kept.ratio)
        if rows.size:
            self.keys.write_cells(io, seq_id, rows)

    def read_keys(self, io: StateReader, seq_id: int, n: int) -> None:
        rows = np.arange(n // self.kept.ratio)
        if rows.size:
            self.keys.read_cells(io, seq_id, rows)

    def write_state(self, io: StateWriter, seq_id: int, plane: int) -> None:
        for t in self.states():
            at = (plane * self.sizes.n_stream + seq_id) * t.nb[2]
            io.blob(read_part(t, at, t.nb[2]))

    def read_state(self, io: StateReader, seq_id: int) -> None:
        for t in self.states():
            write_part(t, seq_id * t.nb[2], io.blob(t.nb[2]))

    def layout(self) -> str:
        c = self.kept
        return f"{c.kind} {c.ratio} {c.n_embd_state} {self.keys.layout()}"

"""Tensors of a KV cache, and the nodes that read and write them (llama-kv-cache.cpp)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Buffer, Device
from ggml_py.ops import cont, pad, reshape, set_rows, view_2d, view_4d
from ggml_py.tensor import Tensor
from ggml_py.types import F16, GGMLType
from llama_py.hparams.layer_shape import Rope
from llama_py.memory.base import LayerKey, allocate, key_name, read_part, write_part
from llama_py.memory.cells import Indices
from llama_py.memory.io import StateReader, StateWriter


@dataclass(frozen=True, slots=True)
class KVLayer:
    """A layer with keys and values; n_embd_head_v 0: values are the beginning of the keys (MLA).
    rope  rotation of the keys
    part  index of the device that has these heads, if devices share the layer; else None
    copied  each of these devices has all heads
    """

    il: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    device: Device
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False

    @property
    def key(self) -> LayerKey:
        return self.il if self.part is None else (self.il, self.part)

    @property
    def n_embd_k_gqa(self) -> int:
        return self.n_embd_head_k * self.n_head_kv

    @property
    def n_embd_v_gqa(self) -> int:
        return self.n_embd_head_v * self.n_head_kv


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The tensors of a KV cache.

    v_trans  V is stored transposed (needed when flash attention is off): a stream of it holds
             [kv_size, n_embd_v_gqa]
    same_as  layers that read another layer's cache
    n_embd_v_max  the widest values of all caches of a memory
    tag      part of the names if a layer has two caches: `cache_idx_k_l%d`
    """

    type_k: GGMLType = F16
    type_v: GGMLType = F16
    v_trans: bool = False
    same_as: Mapping[int, int] = field(default_factory=dict)
    n_embd_v_max: int = 0
    tag: str = ""


F16_ROWS = RowLayout()


class KVTensors:
    """`cache_k_l%d` and `cache_v_l%d`, each [n_embd_gqa, kv_size, n_stream]; if devices share a
    layer, each has `cache_k_l%d.%d` with its heads, with the key (layer, part).
    """

    def __init__(
        self, layers: Sequence[KVLayer], kv_size: int, n_stream: int, rows: RowLayout
    ) -> None:
        type_k, type_v, v_trans, tag = rows.type_k, rows.type_v, rows.v_trans, rows.tag
        self.same_as = rows.same_as
        self.layers = {layer.key: layer for layer in layers}
        self.kv_size = kv_size
        self.n_stream = n_stream
        self.type_k = type_k
        self.type_v = type_v
        self.v_trans = v_trans
        self.n_embd_v_max = max([rows.n_embd_v_max, *(layer.n_embd_v_gqa for layer in layers)])
        self.k: dict[LayerKey, Tensor] = {}
        self.v: dict[LayerKey, Tensor] = {}
        placed: list[tuple[Device, Tensor]] = []
        for layer in layers:
            k = Tensor(type_k, (layer.n_embd_k_gqa, kv_size, n_stream))
            self.k[layer.key] = k.set_name(f"cache_{tag}k_l{key_name(layer.key)}")
            placed.append((layer.device, k))
            if layer.n_embd_head_v:
                # transposed rows are one element of all layers, so all need the widest
                n_embd_v = self.n_embd_v_max if v_trans else layer.n_embd_v_gqa
                v = Tensor(type_v, (n_embd_v, kv_size, n_stream))
                self.v[layer.key] = v.set_name(f"cache_{tag}v_l{key_name(layer.key)}")
                placed.append((layer.device, v))
        told_as = "llama_kv_cache: %10s KV"
        self.buffers: list[tuple[Device, Buffer]] = allocate("KV cache", told_as, placed)

    def list_tensors(self) -> list[Tensor]:
        return [*self.k.values(), *self.v.values()]

    def _owner(self, key: LayerKey) -> LayerKey:
        return self.same_as.get(key, key) if isinstance(key, int) else key

    def get_k(self, il: LayerKey, n_kv: int, s0: int, n_stream: int) -> Tensor:
        """Return keys of the first n_kv cells, [n_embd_head_k, n_head_kv, n_kv, n_stream]."""
        il = self._owner(il)
        k, layer = self.k[il], self.layers[il]
        row = k.type.row_size
        stream = row(layer.n_embd_k_gqa) * self.kv_size
        return view_4d(
            k,
            layer.n_embd_head_k,
            layer.n_head_kv,
            n_kv,
            n_stream,
            row(layer.n_embd_head_k),
            row(layer.n_embd_k_gqa),
            stream,
            stream * s0,
        )

    def get_v(self, il: LayerKey, n_kv: int, s0: int, n_stream: int) -> Tensor:
        """Return values of the first n_kv cells, [n_embd_head_v, n_head_kv, n_kv, n_stream],
        or [n_kv, n_head_kv, n_embd_head_v, n_stream] with v_trans."""
        il = self._owner(il)
        v, layer = self.v[il], self.layers[il]
        row = v.type.row_size
        stream = row(v.ne[0] * self.kv_size)
        if not self.v_trans:
            return view_4d(
                v,
                layer.n_embd_head_v,
                layer.n_head_kv,
                n_kv,
                n_stream,
                row(layer.n_embd_head_v),
                row(v.ne[0]),
                stream,
                stream * s0,
            )
        return view_4d(
            v,
            n_kv,
            layer.n_head_kv,
            layer.n_embd_head_v,
            n_stream,
            row(self.kv_size * layer.n_embd_head_v),
            row(self.kv_size),
            stream,
            stream * s0,
        )

    def cpy_k(self, k_cur: Tensor, k_idxs: Tensor, il: LayerKey) -> Tensor:
        """Store k_cur [n_embd_head, n_head_kv, n_tokens] in rows k_idxs, counted over streams."""
        n_embd = k_cur.ne[0] * k_cur.ne[1]
        rows = view_2d(k_cur, n_embd, k_cur.ne[2], k_cur.nb[2], 0)
        return set_rows(self._all_streams(self.k[il]), rows, k_idxs)

    def cpy_v(self, v_cur: Tensor, v_idxs: Tensor, il: LayerKey) -> Tensor:
        """Store v_cur like `cpy_k`; with v_trans every element is a separate row."""
        v = self.v[il]
        n_embd, n_tokens = v_cur.ne[0] * v_cur.ne[1], v_cur.ne[2]
        if not self.v_trans:
            rows = view_2d(v_cur, n_embd, n_tokens, v_cur.nb[2], 0)
            return set_rows(self._all_streams(v), rows, v_idxs)
        dense = v_cur.nb[2] == v_cur.type.row_size(n_embd)
        v_cur = reshape(v_cur, n_embd, n_tokens) if dense else cont(v_cur, n_embd, n_tokens)
        if n_embd < v.ne[0]:
            v_cur = pad(v_cur, v.ne[0] - n_embd, 0, 0, 0)
        elements = reshape(v, 1, v.n_elements)
        return set_rows(elements, reshape(v_cur, 1, v_cur.n_elements), v_idxs)

    def _all_streams(self, t: Tensor) -> Tensor:
        if self.n_stream == 1:
            return t
        return reshape(t, t.ne[0], self.kv_size * self.n_stream)

    def copy_stream(self, src: int, dst: int) -> None:
        """Copy all bytes of one stream over another."""
        for t in (*self.k.values(), *self.v.values()):
            write_part(t, dst * t.nb[2], read_part(t, src * t.nb[2], t.nb[2]))

    def swap_streams(self, a: int, b: int, n: int) -> None:
        """Swap the first n cells of two streams, all layers."""
        for t, whole in (
            *((t, False) for t in self.k.values()),
            *((t, self.v_trans) for t in self.v.values()),
        ):
            size = t.nb[2] if whole else n * t.nb[1]
            one, other = (read_part(t, stream * t.nb[2], size) for stream in (a, b))
            write_part(t, a * t.nb[2], other)
            write_part(t, b * t.nb[2], one)

    def layout(self) -> str:
        """Describe types and row sizes that a saved state must match, however layers are shared."""
        rows = ",".join(
            f"{il}:{sum(x.n_embd_k_gqa for x in parts)}+{sum(x.n_embd_v_gqa for x in parts)}"
            for il, parts in self._saved_layers()
        )
        return f"kv {self.type_k} {self.type_v} {'transposed ' if self.v_trans else ''}[{rows}]"

    def _whole_layers(self) -> Iterator[tuple[int, list[KVLayer]]]:
        for il, parts in groupby(self.layers.values(), lambda layer: layer.il):
            yield il, [*parts]

    def _saved_layers(self) -> Iterator[tuple[int, list[KVLayer]]]:
        """Yield each layer with its parts; of identical copies only the first."""
        for il, parts in self._whole_layers():
            yield il, parts[:1] if parts[0].copied else parts

    def write_cells(self, io: StateWriter, stream: int, cells: Indices) -> None:
        """Write these cells (ascending) of all layers to a saved state."""
        for tensors, transposed in ((self.k, False), (self.v, self.v_trans)):
            for _, parts in self._saved_layers():
                mine = [
                    self._read_rows(tensors[x.key], x, stream, cells, transposed)
                    for x in parts
                    if x.key in tensors
                ]
                if mine:
                    rows = np.concatenate(mine, 0 if transposed else 1)
                    io.blob(np.ascontiguousarray(rows).reshape(-1))

    def _read_rows(
        self, t: Tensor, layer: KVLayer, stream: int, cells: Indices, transposed: bool
    ) -> npt.NDArray[np.uint8]:
        """Return bytes [cells, row], or transposed [dimensions, cells, element]."""
        if transposed:
            return self._columns(t, stream)[: layer.n_embd_v_gqa, cells]
        start = stream * t.nb[2]
        rows = [read_part(t, start + a * t.nb[1], (b - a) * t.nb[1]) for a, b in runs(cells)]
        return np.concatenate(rows).reshape(cells.size, t.nb[1])

    def read_cells(self, io: StateReader, stream: int, cells: Indices) -> None:
        """Put rows written by write_cells into these cells (ascending)."""
        for tensors, transposed in ((self.k, False), (self.v, self.v_trans)):
            for _, parts in self._whole_layers():
                mine = [x for x in parts if x.key in tensors]
                if not mine:
                    continue
                n_copies = len(mine) if mine[0].copied else 1
                own = mine[:1] if mine[0].copied else mine
                heights = [x.n_embd_v_gqa if transposed else tensors[x.key].nb[1] for x in own]
                each = self.type_v.type_size if transposed else 1
                data = io.blob(cells.size * sum(heights) * each)
                n = sum(heights)
                rows = data.reshape((n, cells.size, each) if transposed else (cells.size, n))
                cut = np.split(rows, np.cumsum(heights)[:-1], 0 if transposed else 1)
                for x, part in zip(mine, cut * n_copies, strict=True):
                    self._restore(tensors[x.key], x, stream, cells, part, transposed)

    def _restore(
        self,
        t: Tensor,
        layer: KVLayer,
        stream: int,
        cells: Indices,
        rows: npt.NDArray[np.uint8],
        transposed: bool,
    ) -> None:
        if transposed:
            columns = self._columns(t, stream)
            columns[: layer.n_embd_v_gqa, cells] = rows
            write_part(t, stream * t.nb[2], columns.reshape(-1))
            return
        at = 0
        for a, b in runs(cells):
            data = np.ascontiguousarray(rows[at : at + b - a]).reshape(-1)
            write_part(t, stream * t.nb[2] + a * t.nb[1], data)
            at += b - a

    def zero_cells(self, stream: int, cells: Indices) -> None:
        """Zero these cells (ascending), all layers."""
        by_row = self.k.values() if self.v_trans else (*self.k.values(), *self.v.values())
        for t in by_row:
            for a, b in runs(cells):
                zeros = np.zeros((b - a) * t.nb[1], np.uint8)
                write_part(t, stream * t.nb[2] + a * t.nb[1], zeros)
        if self.v_trans:
            for t in self.v.values():
                columns = self._columns(t, stream)
                columns[:, cells] = 0
                write_part(t, stream * t.nb[2], columns.reshape(-1))

    def _columns(self, v: Tensor, stream: int) -> npt.NDArray[np.uint8]:
        """Return a stream of a transposed V as bytes [n_embd_v, kv_size, element size]."""
        data = read_part(v, stream * v.nb[2], v.nb[2])
        return data.reshape(v.ne[0], self.kv_size, v.type.type_size)


def runs(cells: Indices) -> list[tuple[int, int]]:
    """Group ascending cells into contiguous ranges [from, to)."""
    if not cells.size:
        return []
    cuts = np.flatnonzero(np.diff(cells) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(cells, cuts)]

"""Experts of a layer: where their matrices are in the file and in a slot of the cache."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.experts.disk import DirectFile, staging_bytes
from ggml_cpu.kernels._products import get_shape
from ggml_cpu.kernels._repack import REPACK
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import View, block_address, new_blocks, pack, set_scratch
from ggml_cpu.quants import weights
from ggml_py.backend import SCATTERED, Bytes, FileWeight, aligned_bytes
from ggml_py.tensor import Tensor

ALIGN = 64  # bytes, of the matrices in a slot
_KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)


def matrix_bytes(weight: Tensor) -> int:
    """Return the bytes of one expert's matrix in a slot: panels, or rows if it has none."""
    if weight.type.name in REPACK:
        return get_shape(weights()[weight.type.name]).matrix_bytes(*weight.ne[:2])
    return weight.nb[2]


def slot_bytes(layer: Sequence[Tensor]) -> int:
    """Return the bytes of a slot for one expert of a layer, all its matrices."""
    return sum(-(-matrix_bytes(t) // ALIGN) * ALIGN for t in layer)


@dataclass(slots=True, eq=False)
class Matrices:
    """The matrices of one weight [k, m, experts].

    file, offset, nbytes  the first expert's matrix in its file; the others follow
    place   offset of a matrix in a slot
    table   address of each expert's matrix, i64 [experts]; an address of an expert that is not
            cached is valid memory, since kernels also read an expert for a wrong id
    repack  kernel that writes panels; None: a slot has the file's rows
    """

    weight: Tensor
    file: DirectFile
    offset: int
    nbytes: int
    place: int
    table: npt.NDArray[np.int64]
    repack: Callable[[int, int, int], None] | None

    def load(self, expert: int, slot: Bytes, memory: Bytes) -> None:
        """Load an expert's matrix into its place in the slot."""
        raw = self.file.read(self.offset + expert * self.nbytes, self.nbytes, memory)
        if self.repack is None:
            slot[self.place : self.place + self.nbytes] = raw
            return
        ne, nb = self.weight.ne, self.weight.nb
        blocks = new_blocks(1)
        views = (address(slot) + self.place, address(raw))
        pack(blocks[0], [View(at, (*ne[:2], 1, 1), nb) for at in views])
        set_scratch(blocks[0], 0, 0, 0)
        self.repack(block_address(blocks), 0, 1)


@dataclass(slots=True, eq=False)
class CachedLayer:
    """The experts of a layer.

    number      of the layer in the cache's order;  first  number of its first expert in the cache
    n_experts   experts;  nbytes  of one in the file;  slot_bytes  and in a slot
    router      matrix of its router [n_embd, n_experts], or None
    forecast    experts that it will probably use in this pass
    memory      bytes that `load` needs
    """

    number: int
    first: int
    n_experts: int
    router: Tensor | None = None
    forecast: npt.NDArray[np.int64] | None = None
    matrices: list[Matrices] = field(default_factory=list)
    slot_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return sum(m.nbytes for m in self.matrices)

    @property
    def memory(self) -> int:
        return max(staging_bytes(m.nbytes) for m in self.matrices)

    def add(self, weight: FileWeight, file: DirectFile) -> Bytes:
        """Scatter a weight: its matrices get places in a slot. Return its data, the table."""
        t, kernel = weight.tensor, REPACK.get(weight.tensor.type.name)
        table = aligned_bytes(8 * self.n_experts)
        repack = None
        if kernel is not None:
            repack = _KERNEL(load_kernels([kernel], None, False)[kernel.name])
        nbytes = t.nbytes // self.n_experts
        made = Matrices(
            t, file, weight.offset, nbytes, self.slot_bytes, table.view(np.int64), repack
        )
        self.matrices.append(made)
        self.slot_bytes += slot_bytes([t])
        t.layout = ("" if repack is None else LAYOUT) + SCATTERED
        return table

    def set_address(self, expert: int, slot: int) -> None:
        """Set the addresses of an expert's matrices to their places in a slot."""
        for m in self.matrices:
            m.table[expert] = slot + m.place


def address(data: Bytes) -> int:
    return int(data.__array_interface__["data"][0])

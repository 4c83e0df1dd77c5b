"""Run quantizers: convert f32 rows to bytes of blocks."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import View, block_address, new_blocks, pack, set_scratch
from ggml_cpu.quantize.kernels import KERNELS
from ggml_cpu.quantize.lanes import LANES, MEMORY
from ggml_cpu.quantize.types import quantizers
from ggml_py.backend import aligned_bytes
from ggml_py.errors import BackendError
from ggml_py.types import GGMLType

F32 = npt.NDArray[np.float32]
Quantize = Callable[[F32, F32 | None], npt.NDArray[np.uint8]]

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def can_quantize(type: GGMLType) -> bool:
    return type.name in quantizers()


def needs_importance(type: GGMLType) -> bool:
    """Return True if the type requires an importance matrix."""
    return quantizers()[type.name].plain is None


@cache
def quantizer(type: GGMLType, weighted: bool) -> Quantize:
    """Return a thread-safe function that quantizes rows.

    It converts rows f32 (n_rows, n_per_row), with importance f32 (n_per_row) if `weighted`, to
    the bytes of rows in a file, uint8 (n_rows, bytes).

    Raises BackendError for a type without a quantizer, or without `weighted` for a type that
    requires importance.
    """
    found = quantizers().get(type.name)
    if found is None or (found.plain is None and not weighted):
        why = "has no quantizer" if found is None else "needs an importance matrix"
        raise BackendError(f"quantize: {type.name} {why}; use another type, or an imatrix")
    use = weighted and found.weighted is not None
    kernel = KERNELS[type.name, use]
    call = _CALL(load_kernels([kernel], None, False)[kernel.name])
    extra = found.tables()
    memory = threading.local()

    def rows(x: F32, importance: F32 | None) -> npt.NDArray[np.uint8]:
        size = MEMORY
        if found.rows:
            size += found.rows.found_size * (x.shape[1] // type.block_size)
        if not hasattr(memory, "bytes") or len(memory.bytes) < size:
            memory.bytes = aligned_bytes(size, 64)
        x = np.ascontiguousarray(x, np.float32)
        out = np.empty((len(x), found.row_size(x.shape[1])), np.uint8)
        blocks = new_blocks(1)
        ne = (x.shape[1], len(x), 1, 1)
        views = [View(out.ctypes.data, ne, (0,) * 4), View(x.ctypes.data, ne, (0,) * 4)]
        if use:
            assert importance is not None
            importance = np.ascontiguousarray(importance, np.float32)
            views.append(View(importance.ctypes.data, (x.shape[1], 1, 1, 1), (0,) * 4))
        pack(blocks[0], views, b"", extra)
        means = np.empty(len(x) + LANES, np.float32)
        set_scratch(blocks[0], means.ctypes.data, memory.bytes.ctypes.data, size)
        call(block_address(blocks), 0, 1)
        return out

    return rows

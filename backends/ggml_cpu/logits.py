"""A kernel that sets logits of forbidden tokens to -inf, by a bit mask, 16 tokens at a time."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import EXTRA, NE, TENSOR_WORDS, TENSORS, WORDS

F32 = npt.NDArray[np.float32]
LANES = 16

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_DST, _LOGITS, _BITS = (TENSORS + TENSOR_WORDS * i for i in range(3))


@kernel(name="mask_logits")
def mask_logits(p, ith, nth):
    """Copy src0 [n] to dst if the bit in src1 is set, else write -inf; lowest bit first.

    extra 0  number of tokens with bits, a multiple of 16; all other tokens get -inf
    """
    n, n_bits = v.ne(p, 0, 0), v.extra(p, 0)
    to, logits, bits = v.data(p, 0), v.data(p, 1), v.data(p, 2)
    for i in range(0, min(n, n_bits), LANES):
        some = v.mask16(v.ld_u16(bits + i // 8))
        x = v.f32x16_load_n(logits + 4 * i, n - i)
        v.store_n(to + 4 * i, v.select(some, x, v.f32x16(-np.inf)), n - i)
    for i in range(n_bits, n, LANES):
        v.store_n(to + 4 * i, v.f32x16(-np.inf), n - i)


@cache
def _load_kernel() -> Callable[[int, int, int], None]:
    return _CALL(load_kernels([mask_logits], None, False)[mask_logits.name])


class _ThreadBlock(threading.local):
    """The parameter block of the calling thread."""

    def __init__(self) -> None:
        self.block = (ctypes.c_int64 * WORDS)()
        self.address = ctypes.addressof(self.block)


class LogitsMask:
    """Callable that masks logits; safe to call from several threads at the same time."""

    def __init__(self) -> None:
        self._call = _load_kernel()
        self._own = _ThreadBlock()

    def __call__(self, logits: F32, bits: bytes) -> F32:
        """Return a copy of logits [n] with -inf for each token with a clear bit."""
        own = self._own
        block, logits = own.block, np.ascontiguousarray(logits, np.float32)
        out = np.empty_like(logits)
        words = np.frombuffer(bits + b"\0" * (len(bits) % 2), np.uint16)
        block[_DST], block[_LOGITS] = out.ctypes.data, logits.ctypes.data
        block[_BITS], block[EXTRA] = words.ctypes.data, LANES * words.size
        block[_DST + NE] = logits.size
        self._call(own.address, 0, 1)
        return out

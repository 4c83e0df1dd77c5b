"""Masking of logits by a grammar's allowed tokens, by a CPU kernel or by NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np

from ggml_py.backend import MaskLogits, MasksLogits
from ggml_py.backend.registry import device
from ggml_py.errors import BackendError
from llama_py.sampler.candidates import F32

# By byte of a mask: values to add to the logits of its eight tokens, lowest bit first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_ADDED = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))


@cache
def mask() -> MaskLogits:
    """Return a function of logits [n] and bits (`ggml_py.backend.MasksLogits`)."""
    try:
        cpu = device("cpu")
    except BackendError:  # backend not installed
        return by_numpy
    return cpu.logits_mask() if isinstance(cpu, MasksLogits) else by_numpy


def by_numpy(logits: F32, bits: bytes) -> F32:
    """Mask logits like the kernel, with NumPy."""
    n = logits.size
    found = np.frombuffer(bits, np.uint8)
    if found.size * 8 < n:  # logits without a token
        found = np.pad(found, (0, (n + 7) // 8 - found.size))
    left: F32 = np.take(_ADDED, found, axis=0).reshape(-1)[:n]
    np.add(left, logits, out=left)
    return left

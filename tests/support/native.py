"""Call one CPU kernel on NumPy arrays, without graph, plan or executor."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ggml_cpu.kernel import Kernel
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import View, block_address, new_blocks, pack, set_scratch

Array = NDArray[np.generic]
SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def view(a: Array) -> View:
    """The array as a kernel sees it: dimensions in ggml order, ne[0] fastest."""
    missing = 4 - a.ndim
    ne = a.shape[::-1] + (1,) * missing
    nb = a.strides[::-1] + (a.nbytes,) * missing
    return View(a.ctypes.data, ne, nb)


def call(
    kernel: Kernel,
    dst: Array,
    *srcs: Array | None,
    op_params: bytes = b"",
    extra: Sequence[int] = (),
    scratch: tuple[int, int] = (0, 0),
    nth: int = 1,
) -> None:
    """Run `kernel.prepare` and `kernel` as `nth` threads would, one after the other."""
    steps = [*kernel.prepare, kernel]
    addresses = load_kernels(steps)
    blocks = new_blocks(1)
    tensors = [dst, *srcs]
    pack(blocks[0], [None if t is None else view(t) for t in tensors], op_params, extra)
    shared, local = scratch
    memory = np.zeros(shared + nth * local + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    set_scratch(blocks[0], start, start + shared, local)
    for step in steps:
        function = SIGNATURE(addresses[step.name])
        for ith in range(nth):
            function(block_address(blocks), ith, nth)

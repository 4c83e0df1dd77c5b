"""One node on the CPU device's kernels, alone in memory between guards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import View, block_address, new_blocks, pack, set_scratch
from ggml_cpu.table import table
from ggml_py.backend import CompileOptions, HostBuffer, aligned_bytes, registry
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from ggml_ref.quants import quantizer

POISON = 0xFF  # NaN, as f32 and f16
GUARD = 256
NAMES = {"float32": "f32", "float16": "f16", "int32": "i32"}
Array = NDArray[np.generic]
Floats = NDArray[np.float32]


@cache
def executor(n_threads: int) -> Executor:
    return Executor(n_threads)


def leaf(x: Array, kind: str = "") -> Tensor:
    """A leaf with the values of an array; `kind`: its type, if not the array's own."""
    t = Tensor(BY_NAME[kind or NAMES[x.dtype.name]], x.shape[::-1])
    if kind and kind != NAMES.get(x.dtype.name):
        quantize = quantizer(t.type)
        assert quantize is not None
        x = np.frombuffer(quantize(x.reshape(-1, x.shape[-1]).astype(np.float32)), np.uint8)
    flat = np.ascontiguousarray(x).view(np.uint8).reshape(-1)
    memory = aligned_bytes(flat.size)
    memory[:] = flat
    t.buffer = HostBuffer(memory)
    return t


def view_of(t: Tensor) -> View:
    root = t.view_src or t
    assert isinstance(root.buffer, HostBuffer)
    return View(root.buffer.base + root.offset + t.view_offs, t.ne, t.nb)


def run(node: Tensor, n_threads: int = 1, more: Sequence[Tensor] = ()) -> Floats:
    """The result [ne3, ne2, ne1, ne0]; `more`: operands of the kernel besides the node's own.

    Fails if anything was written around the result, around the scratch or into a source.
    """
    kernel = table().get(node)
    memory = aligned_bytes(node.nbytes + GUARD)
    shared, local = (-(-n // 64) * 64 for n in kernel.scratch(node, n_threads))
    scratch = aligned_bytes(shared + local * n_threads + GUARD)
    memory[:] = scratch[:] = POISON
    node.buffer, node.offset = HostBuffer(memory), 0
    block = new_blocks(1)
    operands = (node, *node.src, *more)
    views = [None if t is None else view_of(t) for t in operands]
    pack(block[0], views, node.op_params(), kernel.extra(node))
    base = int(scratch.ctypes.data)
    set_scratch(block[0], base, base + shared, local)
    steps = [*kernel.prepare, kernel]
    found = load_kernels(steps)
    entries = in_turn([(found[k.name], block_address(block)) for k in steps])
    before = {id(t): bytes_of(t) for t in node.src if t is not None}
    executor(n_threads).run(int(entries.ctypes.data), len(entries))
    assert (memory[node.nbytes :] == POISON).all(), "wrote past the result"
    assert (scratch[-GUARD:] == POISON).all(), "wrote past the scratch"
    if not more:
        assert all(bytes_of(t) == before[id(t)] for t in node.src if t is not None), "source"
    return memory[: node.nbytes].view(np.float32).reshape(node.ne[::-1]).copy()


def bytes_of(t: Tensor) -> bytes:
    root = t.view_src or t
    assert isinstance(root.buffer, HostBuffer)
    return root.buffer.data.tobytes()


def meaning(node: Tensor) -> Floats:
    """What the reference backend makes of the node."""
    memory = aligned_bytes(node.nbytes)
    memory[:] = POISON
    node.buffer, node.offset = HostBuffer(memory), 0
    for t in node.src:
        if t is not None and t.view_src is not None:
            t.buffer, t.offset = t.view_src.buffer, t.view_src.offset + t.view_offs
    registry.device("ref").compile([node], CompileOptions()).run()
    return memory.view(np.float32).reshape(node.ne[::-1]).copy()


def nmse(got: Floats, want: Floats) -> float:
    """Squared error over squared values; NaN where only one of both is a number."""
    assert (np.isnan(got) == np.isnan(want)).all(), "NaN in different places"
    got, want = (np.nan_to_num(x.astype(np.float64)) for x in (got, want))
    return float(((got - want) ** 2).sum() / max((want**2).sum(), 1e-30))

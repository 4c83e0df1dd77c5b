"""Weights, nodes and runs for the tests of matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_cpu.blocks import amx_pairs, integers16
from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.blocks.integers16 import INTEGERS, NORM
from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import View, block_address, new_blocks, pack, set_scratch
from ggml_cpu.quants import weights
from ggml_cpu.repack import repack
from ggml_cpu.table import table
from ggml_cpu.target import AMX, LANES
from ggml_py.backend import HostBuffer, aligned_bytes
from ggml_py.backend.host_memory import SharedPages
from ggml_py.tensor import Tensor, strided_view
from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer, quantizer

POISON = 0xAB
GUARD = 256
EXECUTORS = {n: Executor(n) for n in (1, 2, 3)}
Floats = NDArray[np.float32]


TABLE = table()


def place(t: Tensor, raw: NDArray[np.generic]) -> Tensor:
    """Give a leaf these bytes."""
    flat = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
    memory = aligned_bytes(flat.size)
    memory[:] = flat
    t.buffer, t.offset = HostBuffer(memory), 0
    return t


def values(t: Tensor) -> Floats:
    """Values of a leaf or of a view of one, [ne3, ne2, ne1, ne0]."""
    root = t.view_src or t
    assert isinstance(root.buffer, HostBuffer)
    raw = root.buffer.data[root.offset + t.view_offs :]
    if t.type.name in ("f32", "f16", "i32"):
        return strided_view(t, raw).astype(np.float32)
    if t.type.name == "bf16":
        return (strided_view(t, raw).astype(np.uint32) << 16).view(np.float32)
    size, length = t.type.type_size, t.ne[0] // t.type.block_size
    shape = (*t.ne[:0:-1], length, size)
    blocks = np.lib.stride_tricks.as_strided(raw, shape, (*t.nb[:0:-1], size, 1))
    return dequantizer(t.type)(blocks.reshape(-1, size)).reshape(t.ne[::-1])


def leaf(kind: str, x: Floats, name: str = "x") -> Tensor:
    """A leaf with the values of an array, rounded or quantized to a type."""
    t = Tensor(BY_NAME[kind], x.shape[::-1], name=name)
    if kind == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        return place(t, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))
    if t.type.is_quantized:
        raw = quantizer(t.type)(x.reshape(-1, x.shape[-1]))
        return place(t, np.frombuffer(raw, np.uint8))
    return place(t, x.astype({"f32": np.float32, "f16": np.float16, "i32": np.int32}[kind]))


def repacked(t: Tensor, *uses: str) -> Tensor:
    """A copy of a leaf in panels, if it has a type that is repacked; for all uses that allow it."""
    copy = Tensor(t.type, t.ne, name=t.name)
    copy.buffer, copy.offset = t.buffer, t.offset
    if not uses:
        rows = weights()[t.type.name].row is not None
        uses = ("MUL_MAT", "MUL_MAT_ID", *(["GET_ROWS"] if rows else []))
    repack(copy, uses, EXECUTORS[2], SharedPages())
    return copy


def layouts(kind: str) -> tuple[str, ...]:
    """Those that weights of a type can have."""
    return ("", LAYOUT) if weights()[kind].is_repacked else ("",)


def view_of(t: Tensor) -> View:
    root = t.view_src or t
    assert isinstance(root.buffer, HostBuffer)
    return View(root.buffer.base + root.offset + t.view_offs, t.ne, t.nb)


@dataclass
class Run:
    """One node, run alone by the kernel that the table gives for it."""

    node: Tensor
    n_threads: int = 2

    def __post_init__(self) -> None:
        self.kernel = TABLE.get(self.node)
        self.memory = aligned_bytes(self.node.nbytes + GUARD)
        self.node.buffer, self.node.offset = HostBuffer(self.memory), 0
        shared, local = (-(-n // 64) * 64 for n in self.kernel.scratch(self.node, self.n_threads))
        self.scratch = aligned_bytes(shared + local * self.n_threads + GUARD)
        blocks = new_blocks(1)
        tensors = [view_of(t) for t in (self.node, *self.node.src) if t is not None]
        pack(blocks[0], tensors, self.node.op_params(), self.kernel.extra(self.node))
        base = int(self.scratch.ctypes.data)
        set_scratch(blocks[0], base, base + shared, local)
        steps = [*self.kernel.prepare, self.kernel]
        found = load_kernels(steps)
        self.blocks = blocks
        self.entries = in_turn([(found[k.name], block_address(blocks)) for k in steps])

    def __call__(self) -> Floats:
        """The result, after a check that nothing was written around it or around the scratch."""
        self.memory[:] = self.scratch[:] = POISON
        EXECUTORS[self.n_threads].run(int(self.entries.ctypes.data), len(self.entries))
        assert (self.memory[self.node.nbytes :] == POISON).all(), "wrote past the result"
        assert (self.scratch[-GUARD:] == POISON).all(), "wrote past the scratch"
        dense = self.memory[: self.node.nbytes].view(np.float32)
        return dense.reshape(self.node.ne[::-1]).copy()


def rounded(kind: str, x: Floats) -> NDArray[np.float64]:
    """Activations as a weight type wants them (ggml-quants.c:quantize_row_q8_K_ref and others)."""
    if kind == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kind.startswith("bf16"):
        bits = np.ascontiguousarray(x).view(np.uint32)
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return bits.view(np.float32).astype(np.float64)
    if kind == "f32":
        return x.astype(np.float64)
    length = 256 if kind.startswith("q8_K") else 32
    blocks = np.ascontiguousarray(x).reshape(*x.shape[:-1], -1, length)
    largest = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
        step = np.where(largest > 0, np.float32(1) / scale, np.float32(0))
    if kind.startswith("q8_0"):
        step = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
    return (np.rint(blocks * scale).astype(np.float64) * step).reshape(x.shape)


def multiplied(
    a: Tensor, b: Tensor, few: bool, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weights and the activations that are multiplied; `few` columns: by `dot` and `dots`."""
    weight = weights()[a.type.name]
    taken = weight.dot_activations if few and not a.layout else weight.activations
    if AMX and weight.values is not None and columns >= amx_pairs.MANY:
        return rounded("bf16", values(a)), rounded("bf16", values(b))
    if taken.name.startswith(INTEGERS.name):
        return in_integers(values(a)), in_integers(values(b))
    return values(a).astype(np.float64), rounded(taken.name, values(b))


def in_integers(x: Floats) -> NDArray[np.float64]:
    """Values that share a scale as integers (blocks/integers16.py)."""
    n, top, length = x.shape[-1], integers16.TOP, integers16.SHARED
    whole = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -n % length)])
    blocks = whole.reshape(*x.shape[:-1], -1, length)
    largest = np.abs(blocks).max(-1, keepdims=True)
    scale = np.maximum(largest / np.float32(top), norms(blocks) / np.float32(NORM))
    with np.errstate(divide="ignore"):
        factor = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
    exact = np.rint(blocks * factor).astype(np.float64) * scale
    return exact.reshape(whole.shape)[..., :n]


def norms(blocks: Floats) -> Floats:
    """Roots of sums of squares, added lane by lane in f32 as the kernel does. [..., 1]"""
    squares = blocks.astype(np.float64).reshape(*blocks.shape[:-1], -1, LANES) ** 2
    sums = np.zeros_like(squares[..., 0, :], np.float32)
    for i in range(squares.shape[-2]):
        sums = (squares[..., i, :] + sums).astype(np.float32)
    root: Floats = np.sqrt(sums.sum(-1, dtype=np.float64, keepdims=True).astype(np.float32))
    return root


def error(got: Floats, expected: NDArray[np.floating]) -> float:
    """Normalised mean squared error."""
    assert got.shape == expected.shape
    difference = got.astype(np.float64) - expected
    return float((difference**2).sum() / max((expected.astype(np.float64) ** 2).sum(), 1e-30))

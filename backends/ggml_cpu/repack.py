"""Repacks weights at load into panels of LANES rows, in the order that kernels read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.bounds import CHECKED
from ggml_cpu.bounds.extents import AllowedExtents, Extent
from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.faults import new_record
from ggml_cpu.kernel import Kernel
from ggml_cpu.kernels._products import get_shape
from ggml_cpu.kernels._repack import REPACK
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import (
    TENSOR_WORDS,
    TENSORS,
    Block,
    View,
    block_address,
    new_blocks,
    pack,
    set_scratch,
)
from ggml_cpu.quants import weights
from ggml_py.backend import HostBuffer
from ggml_py.backend.host_memory import SharedPages
from ggml_py.tensor import Tensor

READERS = {"MUL_MAT", "MUL_MAT_ID", "GET_ROWS"}  # ops with kernels for repacked weights


def repacked_size(weight: Tensor) -> int:
    """Return the bytes of the tensor in panels, including padding rows of the last panels."""
    k, m, n2, n3 = weight.ne
    return get_shape(weights()[weight.type.name]).matrix_bytes(k, m) * n2 * n3


def can_repack(weight: Tensor, uses: Sequence[str]) -> bool:
    """Return True if all ops that use the weight support panels and any op is a matmul."""
    return (
        weight.type.name in REPACK
        and not weight.layout
        and weight.view_src is None
        and weight.is_contiguous()
        and set(uses) <= READERS
        and set(uses) != {"GET_ROWS"}
        and ("GET_ROWS" not in uses or weights()[weight.type.name].row is not None)
        and bool(uses)
    )


def repack_kernels(types: Iterable[str]) -> list[Kernel]:
    """Return the repacking kernels of the given types."""
    return [REPACK[name] for name in dict.fromkeys(types) if name in REPACK]


def repacked_layout(weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
    """Return the layout and bytes of the weight after `repack`; None if it is not repacked."""
    return (LAYOUT, repacked_size(weight)) if can_repack(weight, uses) else None


def repacked_sizes(weights: Sequence[tuple[Tensor, Sequence[str]]]) -> list[int]:
    """Return the bytes of each weight that will be repacked, in order."""
    return [repacked_size(w) for w, uses in weights if can_repack(w, uses)]


def load_repack_kernels(weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
    """Load the weights' repacking kernels; idle compilers start on their matmul kernels."""
    repacked = [(w.type.name, uses) for w, uses in weights if can_repack(w, uses)]
    kernels = repack_kernels(name for name, _ in repacked)
    if kernels:
        load_kernels(kernels, None, False, partial(_product_kernels, repacked))


def _product_kernels(repacked: Iterable[tuple[str, Sequence[str]]]) -> list[Kernel]:
    """Return the matmul kernels of repacked weights, which take longest to compile."""
    from ggml_cpu.kernels.matrix import mul_mat, mul_mat_id  # noqa: F401  (fill KERNELS)
    from ggml_cpu.kernels.matrix._ways import KERNELS, PANELS

    found = (KERNELS.get((op, name, PANELS)) for name, uses in repacked for op in uses)
    return list(dict.fromkeys(kernel for kernel in found if kernel is not None))


def repack(weight: Tensor, uses: Sequence[str], executor: Executor, memory: SharedPages) -> None:
    """Move the weight to a new buffer in panel layout, if `can_repack`."""
    if not can_repack(weight, uses):
        return
    assert isinstance(weight.buffer, HostBuffer)
    panels = HostBuffer(memory.take(repacked_size(weight)))
    step = REPACK[weight.type.name]
    source = View(weight.buffer.base + weight.offset, weight.ne, weight.nb)
    blocks = new_blocks(1)
    pack(blocks[0], [View(panels.base, weight.ne, weight.nb), source])
    set_scratch(blocks[0], 0, 0, 0)
    addresses = load_kernels([step], None, False)
    entries = in_turn([(addresses[step.name], block_address(blocks))])
    bounds = _bounds(blocks, weight, panels) if CHECKED else None
    executor.run(int(entries.ctypes.data), 1)
    if bounds is not None and bounds.row() is not None:
        raise bounds.error(weight, addresses)
    weight.buffer, weight.offset, weight.layout = panels, 0, LAYOUT


def _bounds(blocks: Block, weight: Tensor, panels: HostBuffer) -> AllowedExtents:
    source = Extent(f"src0 {weight}", int(blocks[0, TENSORS + TENSOR_WORDS]), weight.nbytes, False)
    made = Extent("dst, its panels", panels.base, panels.size, True)
    return AllowedExtents(blocks, [[made, source]], new_record())

"""Cases of SET and ACC (ggml_py/ops/copy.py)."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor, contiguous_strides
from ggml_py.types import F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers

Shape = tuple[int, ...]
WINDOWS: list[tuple[Shape, Shape]] = [
    ((0, 0, 0, 0), (6, 5, 4, 3)),
    ((1, 2, 0, 0), (4, 3, 4, 3)),
    ((0, 0, 1, 0), (6, 5, 2, 3)),
    ((0, 0, 0, 1), (6, 5, 4, 2)),
    ((1, 1, 1, 1), (3, 2, 2, 2)),
]
MIDDLE = ((0, 128, 0, 0), (4096, 256, 1, 1))


def _window(a: Tensor, at: Shape, inplace: bool = False) -> tuple[int, int, int, int]:
    """Return strides of the result, which is dense unless it is a; and the offset of the window."""
    nb = a.nb if inplace else contiguous_strides(a.type, a.ne)
    return (*nb[1:], sum(i * s for i, s in zip(at, nb, strict=True)))


@case("SET", max_nmse=0, type=[F32, I32], ne=[(6, 5, 4, 3)], window=WINDOWS, inplace=[False, True])
@case("SET", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], window=[MIDDLE], inplace=[False])
def set_(
    new: Leaves, type: GGMLType, ne: Shape, window: tuple[Shape, Shape], inplace: bool
) -> Tensor:
    init = integers(-100, 100) if type is I32 else None
    a, b = new(ne, type, init), new(window[1], type, init)
    return ops.set_(a, b, *_window(a, window[0], inplace), inplace)


@case("ACC", ne=[(6, 5, 4, 3)], window=WINDOWS, inplace=[False, True])
@case("ACC", perf=True, ne=[(4096, 512, 1, 1)], window=[MIDDLE], inplace=[False])
def acc(new: Leaves, ne: Shape, window: tuple[Shape, Shape], inplace: bool) -> Tensor:
    a = new(ne)
    return ops.acc(a, new(window[1]), *_window(a, window[0], inplace), inplace)


@case("ACC", ne=[(256, 17, 1, 1), (256, 17, 2, 3)],
      strided=["b_part", "b_permuted", "b_half0", "b_half1", "b_half2"])
def acc_strided(new: Leaves, ne: Shape, strided: str) -> Tensor:
    a, small = new(ne), (128, 9, ne[2], ne[3])
    if strided.startswith("b_half"):
        b = new.second_half(small, int(strided[-1]))
    else:
        b = new.part(small) if strided == "b_part" else new.permuted_view(small, (1, 0, 2, 3))
    return ops.acc(a, b, *_window(a, (64, 8, 0, 0)))


@case("ACC", block_size=[16], n_blocks=[4], ne2=[1], ne3=[1])
@case("ACC", block_size=[16], n_blocks=[4], ne2=[3], ne3=[2])
@case("ACC", block_size=[8], n_blocks=[8], ne2=[1], ne3=[1])
@case("ACC", block_size=[32], n_blocks=[4], ne2=[2], ne3=[2])
def acc_block(new: Leaves, block_size: int, n_blocks: int, ne2: int, ne3: int) -> Tensor:
    """Build square matrices from their blocks, one after another, for all batches."""
    chunk = block_size * n_blocks
    out = ops.clamp(new((chunk, chunk, ne2, ne3)), 0, 0)
    for j in range(n_blocks):
        for i in range(n_blocks):
            block = new((block_size, block_size, ne2, ne3))
            out = ops.acc(out, block, *_window(out, (i * block_size, j * block_size, 0, 0)))
    return out

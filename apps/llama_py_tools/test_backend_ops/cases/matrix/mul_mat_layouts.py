"""Cases of MUL_MAT (ggml_py/ops/matrix.py): batches, strides and the types of b."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case
from llama_py_tools.test_backend_ops.cases.matrix.mul_mat import BLOCKS, BOUND, OTHERS, PLAIN, TYPES

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
FEW = [F32, F16, BF16, *BLOCKS[:3], *OTHERS[:1], *OTHERS[-1:]]
BATCHES = [
    ((1, 1), (2, 1)), ((1, 1), (1, 2)), ((3, 1), (1, 1)), ((3, 2), (2, 2)), ((3, 1), (2, 1)),
    ((3, 2), (1, 1)), ((3, 2), (2, 1)), ((3, 2), (1, 2)),
]  # fmt: skip
HEADS = [((8, 1), (4, 1)), ((4, 3), (4, 1)), ((12, 1), (1, 1)), ((1, 3), (4, 1))]


@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[0]], m=[16, 5], n=[1, 8], k=[64],
      bs_nr=BATCHES)
@case("MUL_MAT", max_nmse=BOUND, type_a=FEW, m=[16], n=[1, 4, 16], k=[256],
      bs_nr=[BATCHES[0], BATCHES[3]])
@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16, *BLOCKS[:3]], m=[16], n=[1, 16], k=[1024],
      bs_nr=[((3, 2), (1, 1))])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[64, 83], n=[2, 45, 77], k=[77, 128], bs_nr=HEADS)
@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[0]], m=[16], n=[8], k=[64],
      bs_nr=[((1536, 1), (1, 1))])
def mul_mat_batch(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, bs_nr: tuple[Shape, Shape]
) -> Tensor:
    """Build MUL_MAT of several matrices, each used by a group of b's (grouped heads)."""
    (b2, b3), (r2, r3) = bs_nr
    return ops.mul_mat(new((k, m, b2, b3), type_a), new((k, n, b2 * r2, b3 * r3)))


@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16], m=[17], n=[1, 9], k=[64, 65],
      per=[(0, 2, 1, 3), (0, 3, 2, 1)])
def mul_mat_permuted(new: Leaves, type_a: GGMLType, m: int, n: int, k: int, per: Shape) -> Tensor:
    """Build MUL_MAT of heads laid out by token, as in attention without flash."""
    a = new.permuted_view((k, m, 2, 3), per, type_a)
    return ops.mul_mat(a, new.permuted_view((k, n, 4, 3), per))


@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES, m=[17], n=[1, 2, 9], k=[256], b_part=[True])
def mul_mat_strided(new: Leaves, type_a: GGMLType, m: int, n: int, k: int, b_part: bool) -> Tensor:
    return ops.mul_mat(new.weight((k, m), type_a), new.part((k, n)))


@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16], type_b=[F16], m=[17], n=[1, 9], k=[65, 256])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, type_b=[F16, BF16], m=[1, 64], n=[1, 32, 509],
      k=[4, 80, 588])
@case("MUL_MAT", max_nmse=BOUND, type_a=BLOCKS + OTHERS, type_b=[F16, BF16], m=[16], n=[1, 4, 16],
      k=[256])
def mul_mat_half(new: Leaves, type_a: GGMLType, type_b: GGMLType, m: int, n: int, k: int) -> Tensor:
    return ops.mul_mat(new((k, m), type_a), new((k, n), type_b))


@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16], m=[17], n=[3], k=[65], transposed_b=[True])
def mul_mat_transposed(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, transposed_b: bool
) -> Tensor:
    return ops.mul_mat(new((k, m), type_a), ops.transpose(new((n, k))))


@case("MUL_MAT", max_nmse=BOUND, type_a=FEW, m=[16], n=[1, 4, 16], k=[256],
      per=[(0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 2, 1)], bs=[(2, 3)])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[129, 1057], n=[1], k=[67, 128],
      per=[(0, 2, 1, 3)], bs=[(2, 1), (4, 3)], nr=[1, 4])
def mul_mat_both_permuted(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, per: Shape, bs: Shape, nr: int = 1
) -> Tensor:
    a = new.permuted_view((k, m, *bs), per, type_a)
    return ops.mul_mat(a, new.permuted_view((k, n, bs[0] * nr, bs[1]), per))


@case("MUL_MAT", max_nmse=BOUND, type_a=FEW, m=[16], n=[1, 3, 32], k=[256], half=[(0, 0)])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[128, 129], n=[1], k=[1056, 1057],
      half=[(0, 0), (1, 0), (2, 0), (0, 1)])
@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[0]], m=[8], n=[1, 16], k=[64],
      half=[(1, None), (2, None), (None, 1), (None, 2), (1, 2)])
def mul_mat_halves(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, half: tuple[int | None, int | None]
) -> Tensor:
    """Build MUL_MAT with halves of larger tensors: rows, matrices or batches have gaps."""
    shapes, types = ((k, m, 4, 3), (k, n, 8, 3)), (type_a, F32)
    a, b = (
        new(ne, t) if dim is None else new.second_half(ne, dim, t)
        for ne, t, dim in zip(shapes, types, half, strict=True)
    )
    return ops.mul_mat(a, b)


@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16], m=[8], n=[1, 16], k=[64], padding=[16])
def mul_mat_padded(new: Leaves, type_a: GGMLType, m: int, n: int, k: int, padding: int) -> Tensor:
    """Build MUL_MAT of matrices that are not a whole number of rows apart."""
    plane = (m * k + padding) * type_a.type_size
    a = ops.view_3d(new((8 * (m * k + padding),), type_a), k, m, 8, k * type_a.type_size, plane, 0)
    return ops.mul_mat(a, new((k, n, 8)))


@case("MUL_MAT", max_nmse=BOUND, m=[32], n=[4], k=[96], bs=[(3, 2)], overlap=[True])
def mul_mat_overlapping(new: Leaves, m: int, n: int, k: int, bs: Shape, overlap: bool) -> Tensor:
    """Build MUL_MAT with b in the middle of a."""
    a = new((k, m, *bs))
    b = ops.view_4d(a, k, n, *bs, *a.nb[1:], m // 2 * a.nb[1])  # type: ignore[call-arg]
    return ops.mul_mat(a, b)

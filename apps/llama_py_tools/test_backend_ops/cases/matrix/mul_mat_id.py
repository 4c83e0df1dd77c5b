"""Cases of MUL_MAT_ID (ggml_py/ops/matrix.py)."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, draws, uniform
from llama_py_tools.test_backend_ops.cases.matrix.mul_mat import (
    BLOCKS,
    BOUND,
    OTHERS,
    RARE,
    REST,
    SMALL,
    TYPES,
    flops,
)
from llama_py_tools.test_backend_ops.cases.rows import row_numbers

BF16 = BY_NAME["bf16"]


@case("MUL_MAT_ID", max_nmse=BOUND, type_a=TYPES, n_mats=[4], n_used=[2], b=[False, True], m=[33],
      n=[1, 2, 9, 33], k=[256], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[2]], n_mats=[8], n_used=[1, 4],
      b=[False, True], m=[17], n=[1, 5, 129], k=[256], prepared=[False])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=RARE, n_mats=[4], n_used=[2], b=[False], m=[33],
      n=[1, 9, 33], k=[256], prepared=[False, True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=REST, n_mats=[4], n_used=[2], b=[False], m=[33],
      n=[1, 33], k=[256], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=SMALL, n_mats=[4], n_used=[2], b=[False], m=[33],
      n=[1, 9, 33], k=[96], prepared=[False, True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=TYPES + OTHERS, n_mats=[2], n_used=[1], b=[False],
      m=[49], n=[400], k=[768], prepared=[False, True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F32], n_mats=[4], n_used=[2], b=[False], m=[17],
      n=[0, 5], k=[65], prepared=[False])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[BLOCKS[2], F16], n_mats=[4], n_used=[4], b=[False],
      m=[64], n=[1, 15, 16, 17, 31, 47, 49], k=[256], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F16, BF16], n_mats=[16], n_used=[16], b=[False, True],
      m=[32, 50], n=[200], k=[16, 64], prepared=[False])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F16], n_mats=[2], n_used=[2], b=[False, True], m=[8],
      n=[8192], k=[16], prepared=[False])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F16], n_mats=[1], n_used=[1], b=[False], m=[8], n=[16],
      k=[1, 63, 65], prepared=[False])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[BLOCKS[1]], n_mats=[512, 1024], n_used=[10], b=[False],
      m=[32], n=[1, 5, 300], k=[64], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=TYPES + OTHERS, n_mats=[4], n_used=[2], b=[False],
      m=[64], n=[16], k=[768], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[*BLOCKS[:3], *OTHERS[:1]], n_mats=[8], n_used=[1, 4],
      b=[False, True], m=[64], n=[1, 4, 5, 17, 129], k=[256], prepared=[True])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[BLOCKS[0], BLOCKS[2]], n_mats=[8], n_used=[2],
      b=[False], m=[64], n=[1, 16, 64], k=[256], prepared=[True], range=[1e5])
@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[0]], n_mats=[4], n_used=[2], b=[False],
      m=[8], n=[1, 16], k=[64], prepared=[False], half=[1, 2])
@case("MUL_MAT_ID", perf=True, flops=flops, type_a=[F16, BLOCKS[2]], n_mats=[64], n_used=[8],
      b=[False], m=[768], n=[1, 512], k=[2048], prepared=[True])
def mul_mat_id(
    new: Leaves, type_a: GGMLType, n_mats: int, n_used: int, b: bool, m: int, n: int, k: int,
    prepared: bool, range: float = 1.0, half: int | None = None,
) -> Tensor:
    """Build MUL_MAT_ID with ids from a longer list; b: every expert reads the same row of the
    token.

    range: b's largest value; beyond f16's it may not be rounded to f16. half: the matrices are half
    of a larger tensor.
    """
    ids = new((n_mats, n), I32, row_numbers(n_mats))
    ids = ops.view_2d(ids, n_used, n, ids.nb[1], 0)
    ne = (k, m, n_mats)
    if half is not None:
        as_ = new.second_half(ne, half, type_a)
    else:
        as_ = (new.weight if prepared else new)(ne, type_a)
    return ops.mul_mat_id(as_, new((k, 1 if b else n_used, n), F32, uniform(-range, range)), ids)


@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F32, BLOCKS[0]], n_mats=[4], n_used=[3], m=[17], n=[5],
      k=[64], same=[True])
def mul_mat_id_same(
    new: Leaves, type_a: GGMLType, n_mats: int, n_used: int, m: int, n: int, k: int, same: bool
) -> Tensor:
    """Build MUL_MAT_ID with one expert that all tokens choose, several times."""
    ids = new((n_used, n), I32, lambda rng, shape: np.full(shape, n_mats - 1))
    return ops.mul_mat_id(new((k, m, n_mats), type_a), new((k, n_used, n)), ids)


@case("MUL_MAT_ID", max_nmse=BOUND, type_a=[F32, BLOCKS[0], BLOCKS[2]], n_mats=[3], n_used=[4],
      m=[33], n=[1, 3, 40], k=[256], prepared=[False, True], first=[0, 2, 5], of=[8])
def mul_mat_id_some(
    new: Leaves, type_a: GGMLType, n_mats: int, n_used: int, m: int, n: int, k: int,
    prepared: bool, first: int, of: int,
) -> Tensor:
    """Multiply by chosen matrices; this device has only a part of the matrices."""
    ids = ops.view_2d(x := new((of, n), I32, row_numbers(of)), n_used, n, x.nb[1], 0)
    as_ = (new.weight if prepared else new)((k, m, n_mats), type_a)
    return ops.mul_mat_id(as_, new((k, 1, n)), ids, first=first, of=of)


draws("MUL_MAT_ID", 2, lambda t: row_numbers(t.param("of") or t.src[0].ne[2]))

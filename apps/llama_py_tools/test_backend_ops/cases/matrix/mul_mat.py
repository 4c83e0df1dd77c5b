"""Cases of MUL_MAT (ggml_py/ops/matrix.py): every type of weight."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases._quantized import PARTNERS, QUANTIZED
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, ...]
TYPES = [BY_NAME[n] for n in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_K", "q5_K", "q6_K")]
OTHERS = [BY_NAME[n] for n in ("q4_1", "q5_0", "q5_1", "iq4_nl", "q2_K", "q3_K", "iq4_xs", "mxfp4")]
PLAIN = TYPES[:3]
BLOCKS = TYPES[3:]
HALF_BLOCKS = BLOCKS[:2]
RARE = OTHERS[3:]  # types in files of two to four bits
FALLBACKS = OTHERS[:3]  # types in q4_K and q5_K files for rows that are not a multiple of 256
REST = [t for t in QUANTIZED if t not in TYPES + OTHERS + PARTNERS]
SMALL = FALLBACKS + [BY_NAME[n] for n in ("iq4_nl", "mxfp4")]  # blocks of 32
COLUMNS = [1, 2, 3, 5, 8, 9, 16, 33, 100]
BOUND = 5e-4


def flops(m: int, n: int, k: int, n_used: int = 1, **_: object) -> float:
    return 2.0 * m * n * k * n_used


@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES, m=[17], n=COLUMNS, k=[256], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES, m=[1, 16, 100], n=[1, 9], k=[768], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES, m=[33], n=[1, 7], k=[4096], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES, m=[65], n=[1, 2, 33], k=[512], prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=OTHERS, m=[17], n=[1, 3, 16], k=[256], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=RARE, m=[1, 65], n=[1, 2, 33], k=[768],
      prepared=[False, True])
@case("MUL_MAT", max_nmse=BOUND, type_a=REST, m=[17], n=[1, 3, 16], k=[256], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=REST, m=[1, 65], n=[1, 33], k=[768], prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=HALF_BLOCKS + SMALL, m=[5, 16], n=[1, 9], k=[32, 96],
      prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=SMALL, m=[17], n=[1, 2, 9, 33], k=[96, 384],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[1, 3, 33], n=[1, 2, 17], k=[1, 3, 63, 65, 257],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, BLOCKS[0]], m=[5], n=[0], k=[64], prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES + OTHERS, m=[16], n=[1, 4, 8], k=[4096],
      prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES + OTHERS, m=[1], n=[64], k=[256], prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES + OTHERS, m=[16], n=[4, 6, 7, 10, 127], k=[256],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=TYPES + OTHERS + REST, m=[49], n=[200],
      k=[1280], prepared=[False, True])
@case("MUL_MAT", max_nmse=BOUND, type_a=HALF_BLOCKS + SMALL, m=[16], n=[1], k=[32],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[1], n=[7, 127, 512], k=[2048, 2051],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=[F32, F16, BLOCKS[0]], m=[31, 32], n=[509], k=[2112],
      prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=PLAIN, m=[1056, 1057], n=[1], k=[4, 129],
      prepared=[False, True])
@case("MUL_MAT", max_nmse=BOUND, type_a=BLOCKS[:4], m=[1023], n=[2, 5], k=[1024], prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=HALF_BLOCKS + OTHERS[-1:], m=[288], n=[32], k=[2880],
      prepared=[True])
@case("MUL_MAT", max_nmse=BOUND, type_a=[BLOCKS[1]], m=[1], n=[2048], k=[8192], prepared=[False])
@case("MUL_MAT", max_nmse=BOUND, type_a=[BLOCKS[0]], m=[6], n=[1024], k=[5120], prepared=[True])
@case("MUL_MAT", perf=True, flops=flops, type_a=TYPES + RARE + REST, m=[4096], n=[1, 512], k=[4096],
      prepared=[True])
def mul_mat(new: Leaves, type_a: GGMLType, m: int, n: int, k: int, prepared: bool) -> Tensor:
    # Sums near zero have no relative precision: results with few elements must not cancel.
    init = uniform(0, 1) if m * n < 6 else None
    a = (new.weight if prepared else new)((k, m), type_a, init)
    return ops.mul_mat(a, new((k, n), F32, init))


def hadamard(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return the Hadamard matrix over sqrt(n): signs by the parity of common bits of row and
    column."""
    n = shape[-1]
    common = np.arange(n)[:, None] & np.arange(n)
    matrix: Array = np.where(np.bitwise_count(common) % 2, -1, 1) / np.sqrt(n)
    return matrix


@case("MUL_MAT_HADAMARD", max_nmse=BOUND, type_b=[F32, F16], n=[32, 64, 128, 256, 512, 1024, 2048],
      m=[1, 7], bs=[(1, 1)])
@case("MUL_MAT_HADAMARD", max_nmse=BOUND, type_b=[F32, F16], n=[2, 4, 128], m=[4, 32], bs=[(2, 3)])
@case("MUL_MAT_HADAMARD", max_nmse=BOUND, type_b=[F32, F16], n=[4096], m=[1], bs=[(1, 1)])
@case("MUL_MAT_HADAMARD", max_nmse=BOUND, type_b=[F32], n=[8192], m=[1], bs=[(1, 1)])
@case("MUL_MAT_HADAMARD", max_nmse=BOUND, type_b=[F32, F16], n=[256], m=[512], bs=[(1, 1)])
def mul_mat_hadamard(new: Leaves, type_b: GGMLType, n: int, m: int, bs: tuple[int, int]) -> Tensor:
    return ops.mul_mat_hadamard(new((n, n), F32, hadamard), new((n, m, *bs), type_b))


differs_from_ggml("MUL_MAT_HADAMARD", "assumes a contiguous src1", gaps=[1])

"""Cases of OUT_PROD (ggml_py/ops/matrix.py)."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
STORED = [BY_NAME[n] for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K")]
OTHERS = [BY_NAME[n] for n in ("q2_K", "q3_K", "q5_K", "iq4_nl", "iq4_xs", "mxfp4")]


@case("OUT_PROD", type_a=[F32, F16, BF16], m=[256], n=[1, 16], k=[1, 16],
      bs=[(1, 1), (3, 1), (3, 3)], nr=[(1, 1), (2, 1), (2, 2)])
@case("OUT_PROD", type_a=STORED, m=[256], n=[1, 16], k=[1, 16], bs=[(3, 3)],
      nr=[(1, 1), (2, 2)])
@case("OUT_PROD", type_a=OTHERS, m=[256], n=[16], k=[1, 16], bs=[(1, 3)], nr=[(2, 2)])
@case("OUT_PROD", type_a=[F32, F16, STORED[0]], m=[256], n=[1, 16], k=[16], bs=[(1, 3)],
      nr=[(1, 1), (1, 2)])
@case("OUT_PROD", type_a=[F32], m=[256], n=[16], k=[16], bs=[(8, 1), (32, 1)], nr=[(1, 1)])
@case("OUT_PROD", type_a=[F32], m=[256], n=[16], k=[16], bs=[(1, 1)], nr=[(8, 1), (32, 1)])
@case("OUT_PROD", type_a=[F32, F16], m=[37], n=[5], k=[9], bs=[(2, 1)], nr=[(1, 3)],
      v=["", "a", "trans_b"])
@case("OUT_PROD", perf=True, flops=lambda m, n, k, **_: 2.0 * m * n * k, type_a=[F32], m=[1024],
      n=[1024], k=[512], bs=[(1, 1)], nr=[(1, 1)])
def out_prod(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, bs: Shape, nr: Shape, v: str = ""
) -> Tensor:
    outer = (bs[0] * nr[0], bs[1] * nr[1])
    a = (new.part if v == "a" else new)((m, k, *bs), type_a)
    b = ops.transpose(new((k, n, *outer))) if v == "trans_b" else new((n, k, *outer))
    return ops.out_prod(a, b)

"""Cases of ggml_py/ops/training.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
STORED = [BY_NAME[n] for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K")]
OTHERS = [BY_NAME[n] for n in ("q2_K", "q3_K", "q5_K", "iq4_nl", "iq4_xs", "mxfp4")]


@case("OUT_PROD", type_a=[F32, F16, BF16], m=[256], n=[1, 16], k=[1, 16],
      bs=[(1, 1), (3, 1), (3, 3)], nr=[(1, 1), (2, 1), (2, 2)])  # fmt: skip
@case("OUT_PROD", type_a=STORED, m=[256], n=[1, 16], k=[1, 16], bs=[(3, 3)],
      nr=[(1, 1), (2, 2)])  # fmt: skip
@case("OUT_PROD", type_a=OTHERS, m=[256], n=[16], k=[1, 16], bs=[(1, 3)], nr=[(2, 2)])
@case("OUT_PROD", type_a=[F32, F16, STORED[0]], m=[256], n=[1, 16], k=[16], bs=[(1, 3)],
      nr=[(1, 1), (1, 2)])  # fmt: skip
@case("OUT_PROD", type_a=[F32], m=[256], n=[16], k=[16], bs=[(8, 1), (32, 1)], nr=[(1, 1)])
@case("OUT_PROD", type_a=[F32], m=[256], n=[16], k=[16], bs=[(1, 1)], nr=[(8, 1), (32, 1)])
@case("OUT_PROD", type_a=[F32, F16], m=[37], n=[5], k=[9], bs=[(2, 1)], nr=[(1, 3)],
      v=["", "a", "trans_b"])  # fmt: skip
@case("OUT_PROD", perf=True, flops=lambda m, n, k, **_: 2.0 * m * n * k, type_a=[F32], m=[1024],
      n=[1024], k=[512], bs=[(1, 1)], nr=[(1, 1)])  # fmt: skip
def out_prod(
    new: Leaves, type_a: GGMLType, m: int, n: int, k: int, bs: Shape, nr: Shape, v: str = ""
) -> Tensor:
    outer = (bs[0] * nr[0], bs[1] * nr[1])
    a = (new.part if v == "a" else new)((m, k, *bs), type_a)
    b = ops.transpose(new((k, n, *outer))) if v == "trans_b" else new((n, k, *outer))
    return ops.out_prod(a, b)


def _bound(type_a: GGMLType, **_: object) -> float:
    return {"f32": 1e-7, "f16": 1e-6}.get(type_a.name, 1e-4)


@case("ADD1", max_nmse=_bound, type_a=[F32], type_b=[F32], ne=[(10, 5, 4, 3), (257, 1, 1, 1)],
      v=[False, True])  # fmt: skip
@case("ADD1", max_nmse=_bound, type_a=[F16], type_b=[F16, F32], ne=[(33, 5, 4, 3)])
@case("ADD1", max_nmse=_bound, type_a=[BF16], type_b=[BF16, F32], ne=[(33, 5, 4, 3)])
@case("ADD1", max_nmse=_bound, type_a=[F32], type_b=[F32], ne=[(33, 5, 1, 1), (5, 0, 1, 1)],
      inplace=[True])  # fmt: skip
@case("ADD1", perf=True, type_a=[F32], type_b=[F32], ne=[(4096, 512, 1, 1)])
def add1(
    new: Leaves, type_a: GGMLType, type_b: GGMLType, ne: Shape, v: bool = False,
    inplace: bool = False,
) -> Tensor:  # fmt: skip
    return ops.add1((new.apart if v else new)(ne, type_a), new((1,), type_b), inplace)


def _distinct(rng, shape):  # type: ignore[no-untyped-def]
    """Rows of 0, 1, .. in random order, so that an ARGMAX has no ties."""
    return rng.permuted(rng.random(shape), axis=-1).argsort(-1)


@case("COUNT_EQUAL", max_nmse=0, ne=[(4, 500, 1, 1), (4, 5000, 1, 1)])
def count_equal(new: Leaves, ne: Shape) -> Tensor:
    a, b = (ops.argmax(new(ne, init=_distinct)) for _ in "ab")
    return ops.count_equal(a, b)


@case("COUNT_EQUAL", max_nmse=0, ne=[(33, 5, 4, 3), (1, 1, 1, 1), (9001, 3, 1, 1)],
      v=["", "part", "permuted"])  # fmt: skip
@case("COUNT_EQUAL", perf=True, ne=[(4096, 512, 1, 1)], v=[""])
def count_equal_strided(new: Leaves, ne: Shape, v: str) -> Tensor:
    few = integers(0, 3)
    if v == "permuted":
        return ops.count_equal(new(ne, I32, few), new.permuted(ne, (1, 0, 2, 3), I32, few))
    return ops.count_equal((new.part if v else new)(ne, I32, few), new(ne, I32, few))


differs_from_ggml("COUNT_EQUAL", "computes wrong row numbers in tensors with a dimension 3",
                  ne=[(33, 5, 4, 3)])  # fmt: skip
differs_from_ggml("COUNT_EQUAL", "takes the source of ARGMAX to be contiguous", gaps=[0, 1])

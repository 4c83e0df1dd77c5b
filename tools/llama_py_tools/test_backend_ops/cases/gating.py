"""Cases of ggml_py/ops/gating.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform

Shape = tuple[int, ...]
SIZES: list[Shape] = [(1, 3, 1, 1), (33, 5, 3, 2), (4099, 2, 1, 1)]


@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES, limit=[0.0, 0.75])
@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES[1:2], limit=[0.0], inplace=[True])
@case("FUSED_MUL_UNARY", kind=["gelu", "relu", "silu"], ne=SIZES[1:2], limit=[0.0], v=[True])
@case("FUSED_MUL_UNARY", kind=["silu", "sigmoid"], ne=SIZES[1:], limit=[0.0, 0.75], one=[True])
@case("FUSED_MUL_UNARY", perf=True, kind=["silu"], ne=[(12288, 512, 1, 1)], limit=[0.0])
def fused_mul_unary(
    new: Leaves, kind: str, ne: Shape, limit: float, inplace: bool = False, v: bool = False,
    one: bool = False,
) -> Tensor:  # fmt: skip
    """one: one gate for each row."""
    make, wide = new.part if v else new, uniform(-5, 5)
    a, b = make((1, *ne[1:]) if one else ne, init=wide), make(ne, init=wide)
    return ops.fused_mul_unary(a, b, kind, limit, inplace)

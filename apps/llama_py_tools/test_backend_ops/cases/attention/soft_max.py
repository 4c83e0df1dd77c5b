"""Cases of SOFT_MAX (ggml_py/ops/attention.py)."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, long_row
from llama_py_tools.test_backend_ops.cases.attention.flash_attn_ext import kq_mask

Shape = tuple[int, ...]


@case("SOFT_MAX", max_nmse=1e-6, ne=[(n, 5, 4, 3) for n in (1, 3, 16, 33, 65, 257)], mask=[False],
      scale=[1.0, 0.1])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3), (64, 3, 4, 1)], mask=[True], m_prec=[F32, F16],
      nr23=[(1, 1), (2, 1), (4, 1)], scale=[1.0, 0.1], max_bias=[0.0, 8.0])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3)], mask=[False, True], sinks=[True],
      scale=[1.0, 0.1])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3)], mask=[True], nr23=[(1, 3), (2, 3)],
      max_bias=[0.0])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(33, 3, 12, 1)], mask=[True], max_bias=[8.0])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(65, 0, 2, 1)], mask=[False])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(16, 16, 1, 1), (15, 15, 1, 1), (1023, 15, 2, 1)],
      mask=[True], m_prec=[F32, F16], nr23=[(1, 1)], scale=[0.1], max_bias=[0.0, 8.0],
      sinks=[False, True])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(16, 16, 3, 3), (15, 15, 2, 3)], mask=[True],
      m_prec=[F32, F16], nr23=[(1, 3), (1, 1)], scale=[0.1], max_bias=[0.0, 8.0],
      sinks=[False, True])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(4, 1023, 1, 1), (1024, 65, 1, 1), (16, 1024, 1, 1)],
      mask=[False, True], sinks=[False, True])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(32, 2, 32, 1)], mask=[False, True], m_prec=[F32, F16],
      scale=[0.1], max_bias=[0.0], sinks=[False, True], inplace=[False, True])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(200001, 2, 3, 1)], mask=[True], m_prec=[F32, F16],
      scale=[0.1], max_bias=[8.0], sinks=[True])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(200000, 4, 1, 1), (643251, 1, 1, 1)], mask=[False])
@case("SOFT_MAX", perf=True, ne=[(4096, 512, 8, 1)], mask=[True], m_prec=[F32])
def soft_max(
    new: Leaves, ne: Shape, mask: bool, m_prec: GGMLType = F32, nr23: Shape = (1, 1),
    scale: float = 1.0, max_bias: float = 0.0, sinks: bool = False, inplace: bool = False,
) -> Tensor:
    a = new(ne, F32, uniform(-10, 10))
    m = new((ne[0], ne[1], ne[2] // nr23[0], ne[3] // nr23[1]), m_prec, kq_mask) if mask else None
    s = new((ne[2],), F32, uniform(-10, 10)) if sinks else None
    return ops.soft_max_ext(a, m, scale, max_bias, s, inplace)


@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 2, 1)], mask_rows=[8])
def soft_max_padded_mask(new: Leaves, ne: Shape, mask_rows: int) -> Tensor:
    """Build SOFT_MAX with a mask that has more rows than there are tokens."""
    mask = new((ne[0], mask_rows, 1, 1), F32, kq_mask)
    return ops.soft_max_ext(new(ne), mask, 1.0, 0.0)


@case("SOFT_MAX", max_nmse=BOUND, long=LONG)
def long_soft_max(new: Leaves, long: str) -> Tensor:
    return ops.soft_max(long_row(new, long))

"""Selecting and writing rows."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.ops.traffic import dense_bytes
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32, I64


def _get_rows_bytes(t: Tensor) -> int:
    """Return the bytes of the rows read: as large as the result, in the source's type."""
    rows, ids = t.source(0).type, t.source(1)
    return dense_bytes(ids) + t.n_elements // rows.block_size * rows.type_size


def _set_rows_bytes(t: Tensor) -> int:
    """Return the bytes of the rows to set, and of their indices."""
    return sum(dense_bytes(s) for s in t.src[:2] if s is not None)


@op("GET_ROWS", batch=(), reads=_get_rows_bytes)
def get_rows(a: Tensor, ids: Tensor) -> Tensor:
    """Rows of a, dequantized (ggml.c:ggml_get_rows). a [n, rows, B2, B3], ids I32 [r, B2, B3] ->
    F32 [n, r, B2, B3]
    """
    require(
        a.ne[2] == ids.ne[1] and a.ne[3] == ids.ne[2] and ids.ne[3] == 1,
        "get_rows: ids must be [r, a.ne2, a.ne3]",
        a,
        ids,
    )
    require(ids.type is I32, "get_rows: ids must be i32", ids)
    return node("GET_ROWS", I32 if a.type is I32 else F32, (a.ne[0], *ids.ne[:3]), a, ids)


@op("SET_ROWS", reads=_set_rows_bytes)
def set_rows(dst: Tensor, src: Tensor, idx: Tensor) -> Tensor:
    """Write rows of src into dst at row numbers idx, converting to dst's type
    (ggml.c:ggml_set_rows).

    dst [n, rows, B2, B3], src F32|F16 [n, r, B2, B3], idx I64|I32 [r, b2, b3] repeated over B2, B3
    """
    require(
        dst.ne[0] == src.ne[0] and dst.ne[2:] == src.ne[2:],
        "set_rows: dst and src must have the same shape except for rows",
        dst,
        src,
    )
    fits = (
        src.ne[1] == idx.ne[0]
        and _repeats(idx.ne[1], src.ne[2])
        and _repeats(idx.ne[2], src.ne[3])
        and idx.ne[3] == 1
    )
    require(fits, "set_rows: idx must be [src.ne1, divides src.ne2, divides src.ne3]", src, idx)
    require(src.type in (F32, F16), "set_rows: src must be f32 or f16", src)
    require(idx.type in (I64, I32), "set_rows: idx must be i64 or i32", idx)
    require(
        dst.has_contiguous_rows() and src.has_contiguous_rows(),
        "set_rows: rows must be dense",
        dst,
        src,
    )
    return view_result("SET_ROWS", dst, src, idx, dst)


def _repeats(n: int, total: int) -> bool:
    """Return True if n divides total, or both are 0."""
    return total % n == 0 if n else total == 0

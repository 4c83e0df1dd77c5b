"""Patterns of MUL_MAT and the use of its result."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern


def whole_columns(m: Match) -> str:
    """Check that each dense column becomes one row."""
    product, ids, looked = m["product"], m["ids"], m["kept"].src[0]
    if looked is None or looked.ne != product.ne or not looked.is_contiguous():
        return f"needs unchanged dense columns; got {looked}"
    one_id = ids.ne == (product.ne[1], 1, 1, 1) and product.ne[2:] == (1, 1)
    return "" if one_id else f"needs one row for each column; got {ids}"


MUL_MAT_TO_ROWS = Pattern(
    """
    product = MUL_MAT(weight, x)
    kept = SET_ROWS(~product, ids, _)
    """,
    whole_columns,
)

"""Patterns of heads before attention: RMS_NORM with a weight before ROPE, SET_ROWS after it."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern


def all_heads_a_row(m: Match) -> str:
    """Check that the dense heads of a token become one row."""
    y, ids, looked = m["y"], m["ids"], m["kept"].src[0]
    n, n_head, n_tokens, n_batches = y.ne
    row = (n * n_head, n_tokens, 1, 1)
    if looked is None or looked.ne != row or not looked.is_contiguous() or n_batches != 1:
        return f"needs rows of all heads; got {looked}"
    return "" if ids.ne == (n_tokens, 1, 1, 1) else f"needs one row for each token; got {ids}"


def rope_pattern(normed: bool, to_rows: bool, factors: bool) -> Pattern:
    """Return the pattern of ROPE with or without frequency factors, and of its surrounding
    nodes."""
    norm = "norm = RMS_NORM(x)\nproduct = MUL(norm, weight)\n" if normed else ""
    source, more = "product" if normed else "x", ", factors" if factors else ""
    rows = "\nkept = SET_ROWS(~y, ids, _)" if to_rows else ""
    when = (all_heads_a_row,) if to_rows else ()
    return Pattern(f"{norm}y = ROPE({source}, pos{more}){rows}", *when)

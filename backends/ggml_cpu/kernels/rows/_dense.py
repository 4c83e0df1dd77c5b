"""Condition of GET_ROWS and SET_ROWS kernels."""

from __future__ import annotations

from ggml_py.tensor import Tensor


def rows_dense(node: Tensor) -> str:
    """Require dense rows of dst and src0; the index may have any strides."""
    for t in (node, node.source(0)):
        if not t.has_contiguous_rows():
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""

"""A node's line and values as llama-eval-callback prints them (common/debug.cpp)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ggml_py.backend import get_tensor
from ggml_py.tensor import Tensor, numpy_dtype

EDGE = 3  # values shown at each end of a dimension
INDENT = "    "


def heading(t: Tensor) -> str:
    """Return `common_debug_cb_eval: name = (f32)  MUL(a{2, 1, 1, 1}, b{2, 1, 1, 1}}) = {2, 1, 1,
    1}`."""
    first, second = (*t.src, None, None)[:2]
    a = f"{first.name}{{{_ne(first)}}}" if first is not None else "{}"
    b = f"{second.name}{{{_ne(second)}}}" if second is not None else ""
    what = f"{t.name:>24} = ({t.type.name}) {t.op:>10}"
    return f"common_debug_cb_eval: {what}({a}, {b}}}) = {{{_ne(t)}}}"


def read_values(t: Tensor) -> npt.NDArray[np.float32] | None:
    """Return the node's values [ne3, ne2, ne1, ne0] as float32; None for a quantized type."""
    return None if numpy_dtype(t) is None else get_tensor(t).astype(np.float32)


def value_lines(values: npt.NDArray[np.float32]) -> Iterator[str]:
    """Yield lines of the values, three at each end of a dimension, and for each i3 their sum."""
    # llama.cpp adds them one after the other in float32; np.sum does not
    total = np.add.accumulate(values.reshape(-1), dtype=np.float32)[-1] if values.size else 0.0
    for block in values:
        yield f"{INDENT}["
        for plane in _edges(block):
            if plane is None:
                yield f"{2 * INDENT}..., "
                continue
            yield f"{2 * INDENT}["
            for row in _edges(plane):
                yield f"{3 * INDENT}..., " if row is None else f"{3 * INDENT}[{_row(row)}  ],"
            yield f"{2 * INDENT}],"
        yield f"{INDENT}]"
        yield f"{INDENT}sum = {total:f}"


def _edges(values: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32] | None]:
    """Return the items along the first dimension, with None replacing the middle items."""
    if len(values) <= 2 * EDGE:
        return list(values)
    return [*values[:EDGE], None, *values[-EDGE:]]


def _row(row: npt.NDArray[np.float32]) -> str:
    shown = [f"{value:12.4f}" for value in row]
    if len(shown) <= 2 * EDGE:
        return ", ".join(shown)
    return ", ".join(shown[:EDGE]) + ",    ..., " + ", ".join(shown[-EDGE:])


def _ne(t: Tensor) -> str:
    return ", ".join(map(str, t.ne))

"""Launchers, one file a family, named as in ggml_py/ops. Importing a family registers its ops."""

from __future__ import annotations

from ggml_opencl.ops import (
    attention,
    copy,
    elementwise,
    mask,
    matrix,
    norm,
    recurrent,
    reduce,
    rope,
    rows,
)

FAMILIES = (attention, copy, elementwise, mask, matrix, norm, recurrent, reduce, rope, rows)

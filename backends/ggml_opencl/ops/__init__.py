"""Launchers, one file a family, named as in ggml_py/ops. Importing a family registers its ops."""

from __future__ import annotations

from ggml_opencl.ops import (
    activation,
    attention,
    backward,
    collective,
    conv,
    conv_state,
    conv_transpose,
    copy,
    delta_rule,
    elementwise,
    gating,
    hyper_connections,
    indexer,
    linear_attention,
    mask,
    matrix,
    norm,
    optimizer,
    pool,
    recurrent,
    reduce,
    rope,
    rows,
    sequence,
    training,
    upscale,
    window,
    wrap,
)

FAMILIES = (
    activation, attention, backward, collective, conv, conv_state, conv_transpose, copy, delta_rule,
    elementwise, gating, hyper_connections, indexer, linear_attention, mask, matrix, norm,
    optimizer, pool, recurrent, reduce, rope, rows, sequence, training, upscale, window, wrap,
)  # fmt: skip

"""NumPy references of the ops in ggml_py/ops/ssm.py."""

from __future__ import annotations

import itertools

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import einsum, exp
from ggml_ref.indices import check_indices
from ggml_ref.ops._shapes import stretch
from ggml_ref.ops._snapshots import write_states
from ggml_ref.ops.unary import softplus
from ggml_ref.table import table
from ggml_ref.values import Values, elements, load


@table.op("SSM_CONV")
def ssm_conv(node: Tensor, sx: Values, c: Values) -> Values:
    c = c.reshape(-1, c.shape[-1])
    windows = np.lib.stride_tricks.sliding_window_view(sx[0], c.shape[-1], axis=-1)
    return einsum("bctj,cj->btc", windows, c)


@table.step("SSM_CONV_SEQ")
def ssm_conv_seq(node: Tensor) -> None:
    s, x, w, sq = (load(t)[0] for t in node.sources(4))
    x, w, sq = x[0], w[0], sq[0]
    check_indices(node, sq[:, 0], len(s))
    blocks = np.pad(s, [(0, 0), (0, 0), (1, 0)])  # [n_seqs, C, d_conv]
    outputs, kept = np.zeros(x.shape), []
    for t, (first, *others) in enumerate(sq):
        blocks[first] = np.column_stack([blocks[first][:, 1:], x[t]])
        for other in itertools.takewhile(lambda i: 0 <= i < len(blocks), others):
            blocks[other] = blocks[first]
        outputs[t] = (blocks[first] * w).sum(axis=1)
        kept.append(blocks[first][:, 1:].copy())
    elements(node).reshape(-1)[:] = np.concatenate([outputs.reshape(-1), blocks.reshape(-1)])
    if len(node.src) > 4:
        saved = np.array(kept).reshape(-1)
        elements(node.source(4)).reshape(-1)[: saved.size] = saved


@table.step("SSM_SCAN")
def ssm_scan(node: Tensor) -> None:
    s, x, dt, a, b, c, ids = (load(t) for t in node.sources())
    dt, a, ids = softplus(dt[0]), a[0, 0], ids[0, 0, 0]
    n_head = x.shape[2]
    b, c = stretch(b, 2, n_head), stretch(c, 2, n_head)  # [B, T, H, N]
    state = s[check_indices(node, ids, len(s))]  # [B, H, dim, N]
    outputs, states = np.zeros(x.shape), []
    for t in range(x.shape[1]):
        decay = exp(dt[:, t, :, None] * a)  # [B, H, N or 1]
        inflow = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        state = state * decay[:, :, None] + inflow
        outputs[:, t] = (state * c[:, t, :, None]).sum(axis=-1)
        states.append(state)
    write_states(node, outputs, states, node.param("n_snapshots"))

"""References of ggml_py/ops/recurrent.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops._shapes import stretch, tile
from ggml_ref.ops.elementwise import softplus
from ggml_ref.table import table
from ggml_ref.values import Values, elements, load


@table.op("SSM_CONV")
def ssm_conv(node: Tensor, sx: Values, c: Values) -> Values:
    c = c.reshape(-1, c.shape[-1])
    windows = np.lib.stride_tricks.sliding_window_view(sx[0], c.shape[-1], axis=-1)
    return np.einsum("bctj,cj->btc", windows, c)


def write_states(node: Tensor, n_outputs: int, states: list[Values]) -> None:
    """Snapshots after the outputs, newest first; places without a state are left as they were."""
    flat = elements(node).reshape(-1)
    for slot, state in enumerate(states[::-1][: node.param("n_snapshots")]):
        start = n_outputs + slot * state.size
        flat[start : start + state.size] = state.reshape(-1)


@table.step("SSM_SCAN")
def ssm_scan(node: Tensor) -> None:
    s, x, dt, a, b, c, ids = (load(t) for t in node.src)
    dt, a, ids = softplus(dt[0]), a[0, 0], ids[0, 0, 0]
    n_head = x.shape[2]
    b, c = stretch(b, 2, n_head), stretch(c, 2, n_head)  # [B, T, H, N]
    state = s[ids]  # [B, H, dim, N]
    outputs, states = np.zeros(x.shape), []
    for t in range(x.shape[1]):
        decay = np.exp(dt[:, t, :, None] * a)  # [B, H, N or 1]
        inflow = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        state = state * decay[:, :, None] + inflow
        outputs[:, t] = (state * c[:, t, :, None]).sum(axis=-1)
        states.append(state)
    elements(node).reshape(-1)[: outputs.size] = outputs.reshape(-1)
    write_states(node, outputs.size, states)


@table.step("GATED_DELTA_NET")
def gated_delta_net(node: Tensor) -> None:
    q, k, v, g, beta, state = (load(t) for t in node.src)  # [B, T, H, S]; state [B, H, S, S]
    n_seqs, n_tokens, n_head, size = v.shape
    keys = (n_seqs, n_tokens, n_head, size)
    q = tile(stretch(q, 0, n_seqs), keys) / np.sqrt(size)
    k = tile(stretch(k, 0, n_seqs), keys)
    outputs, states = np.zeros(v.shape), []
    for t in range(n_tokens):
        kt = k[:, t, :, :, None]
        state = state * np.exp(g[:, t, :, None])
        delta = beta[:, t] * (v[:, t] - (state @ kt)[..., 0])
        state = state + delta[..., None] * k[:, t, :, None]
        outputs[:, t] = (state @ q[:, t, :, :, None])[..., 0]
        states.append(state)
    elements(node).reshape(-1)[: outputs.size] = outputs.reshape(-1)
    write_states(node, outputs.size, states or [state])

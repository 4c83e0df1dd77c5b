"""NumPy references of the ops in ggml_py/ops/delta_net.py."""

from __future__ import annotations

import math

import numpy as np

from ggml_py.ops.delta_net import REPEAT
from ggml_py.tensor import Tensor
from ggml_ref.functions import clip, einsum, exp, minimum
from ggml_ref.ops._shapes import stretch, tile
from ggml_ref.ops._snapshots import write_states
from ggml_ref.table import table
from ggml_ref.values import Values, elements, load


@table.step("GATED_DELTA_NET")
def gated_delta_net(node: Tensor) -> None:
    q, k, v, g, beta, state = (load(t) for t in node.sources())  # [B, T, H, S], [B, H, S, S]
    n_seqs, n_tokens, n_head, size = v.shape
    keys = (n_seqs, n_tokens, n_head, size)
    q = tile(stretch(q, 0, n_seqs), keys) / math.sqrt(size)
    k = tile(stretch(k, 0, n_seqs), keys)
    outputs, states = np.zeros(v.shape), []
    for t in range(n_tokens):
        kt = k[:, t, :, :, None]
        state = state * exp(g[:, t, :, None])
        delta = beta[:, t] * (v[:, t] - (state @ kt)[..., 0])
        state = state + delta[..., None] * k[:, t, :, None]
        outputs[:, t] = (state @ q[:, t, :, :, None])[..., 0]
        states.append(state)
    write_states(node, outputs, states or [state], node.param("n_snapshots"))


LARGEST = 1e6


def _for_heads(node: Tensor, x: Values, n_head: int) -> Values:
    """Repeat x [B, H_k, T, S] to [B, H, T, S]."""
    if node.param("repeat") == REPEAT["groups"]:
        return stretch(x, 1, n_head)
    return tile(x, (x.shape[0], n_head, *x.shape[2:]))


@table.step("DELTA_NET")
def delta_net(node: Tensor) -> None:
    q, k, v, g, beta, state = (load(t) for t in node.sources(6))
    n_seqs, n_head, n_tokens, size = v.shape
    q, k = (_for_heads(node, x, n_head) for x in (q, k))
    q, beta = q / math.sqrt(size), 1 / (1 + exp(-beta))
    decay = exp(minimum(g, 50))  # [B, H, S or 1, T]
    state = state.reshape(n_seqs, n_head, size, size)  # [B, H, key, value]
    outputs, states = np.zeros((n_seqs, n_tokens, n_head, size)), []
    for t in range(n_tokens):
        state = decay[..., t, None] * state
        delta = beta[:, :, t] * (v[:, :, t] - einsum("bhij,bhi->bhj", state, k[:, :, t]))
        state = state + k[:, :, t, :, None] * delta[:, :, None]
        outputs[:, t] = einsum("bhij,bhi->bhj", state, q[:, :, t])
        state = clip(state, -LARGEST, LARGEST)
        states.append(state)
    elements(node).reshape(-1)[:] = np.concatenate([outputs.reshape(-1), state.reshape(-1)])
    if len(node.src) > 6 and n_tokens > 1:
        kept = np.concatenate([s.reshape(-1) for s in states[:-1]])
        elements(node.source(6)).reshape(-1)[: kept.size] = kept

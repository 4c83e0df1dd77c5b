"""NumPy references of the ops in ggml_py/ops/linear_attention.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import einsum
from ggml_ref.ops._snapshots import write_states
from ggml_ref.table import table
from ggml_ref.values import Values, load

Step = Callable[..., tuple[Values, Values]]


def _scan(node: Tensor, step: Step, state: Values, *tokens: Values, n_snapshots: int = 1) -> None:
    """Write outputs [S * H, T], then states; step(M [B, H, S, S], rows [B, H, S]...) -> o, M."""
    n_seqs = state.shape[-2]
    n_tokens, n_head, size = tokens[0].shape[1:]
    rows = [x.reshape(n_seqs, n_tokens // n_seqs, n_head, size) for x in tokens]
    state = state.reshape(n_seqs, n_head, size, size)
    outputs, states = np.zeros(rows[0].shape), list[Values]()
    for t in range(outputs.shape[1]):
        outputs[:, t], state = step(state, *(x[:, t] for x in rows))
        states = [*states, state][-n_snapshots:]
    write_states(node, outputs, states or [state], n_snapshots)


@table.step("RWKV_WKV6")
def rwkv_wkv6(node: Tensor) -> None:
    k, v, r, tf, td, state = (load(t) for t in node.sources())
    first = tf.reshape(k.shape[2:])[..., None]

    def step(m: Values, k: Values, v: Values, r: Values, td: Values) -> tuple[Values, Values]:
        kv = k[..., :, None] * v[..., None, :]
        return einsum("bhi,bhij->bhj", r, first * kv + m), td[..., None] * m + kv

    _scan(node, step, state, k, v, r, td, n_snapshots=1 + node.param("n_earlier"))


@table.step("RWKV_WKV7")
def rwkv_wkv7(node: Tensor) -> None:
    r, w, k, v, a, b, state = (load(t) for t in node.sources())

    def step(
        m: Values, r: Values, w: Values, k: Values, v: Values, a: Values, b: Values
    ) -> tuple[Values, Values]:
        removed = einsum("bhij,bhj->bhi", m, a)
        m = m * w[..., None, :] + v[..., None] * k[..., None, :]
        m = m + removed[..., None] * b[..., None, :]
        return einsum("bhij,bhj->bhi", m, r), m

    _scan(node, step, state, r, w, k, v, a, b, n_snapshots=1 + node.param("n_earlier"))


@table.step("GATED_LINEAR_ATTN")
def gated_linear_attn(node: Tensor) -> None:
    k, v, q, g, state = (load(t) for t in node.sources())
    scale = node.param("scale")

    def step(m: Values, k: Values, v: Values, q: Values, g: Values) -> tuple[Values, Values]:
        m = g[..., None] * m + k[..., :, None] * v[..., None, :]
        return scale * einsum("bhi,bhij->bhj", q, m), m

    _scan(node, step, state, k, v, q, g, n_snapshots=1 + node.param("n_earlier"))

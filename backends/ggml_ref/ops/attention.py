"""NumPy references of the ops in ggml_py/ops/attention.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import exp, max_along, maximum, tanh, total
from ggml_ref.ops._shapes import stretch, tile
from ggml_ref.table import table
from ggml_ref.values import Values


def slopes(n_head: int, max_bias: float) -> Values:
    """Return the ALiBi slope of each head, [n_head, 1, 1]; 1 without ALiBi (arXiv 2108.12409)."""
    if max_bias <= 0:
        return np.ones((n_head, 1, 1))
    power = 2 ** int(np.log2(n_head))  # the largest power of two in n_head
    head = np.arange(n_head)
    halves = np.where(head < power, 2 * (head + 1), 2 * (head - power) + 1)
    slope: Values = 2.0 ** (-max_bias / 2 / power * halves)
    return slope[:, None, None]


def add_bias(scores: Values, mask: Values | None, max_bias: float) -> Values:
    """Return scores [B, H, T, n_kv] plus slope * mask, repeated over batch and heads."""
    if mask is None:
        return scores
    n_batch, n_head, n_tokens, n_kv = scores.shape
    mask = mask[:, :, :n_tokens, :n_kv]
    return scores + slopes(n_head, max_bias) * tile(mask, (n_batch, n_head, n_tokens, n_kv))


def weights(scores: Values, sinks: Values | None) -> Values:
    """Return softmax along the last axis; a head's sink only affects the maximum and the sum."""
    top = max_along(scores)
    if sinks is None:
        e = exp(scores - top)
        return e / total(e)
    sink = sinks.reshape(-1, 1, 1)
    top = maximum(top, sink)
    e = exp(scores - top)
    return e / (total(e) + exp(sink - top))


@table.op("SOFT_MAX")
def soft_max(
    node: Tensor, a: Values, mask: Values | None = None, sinks: Values | None = None
) -> Values:
    return weights(add_bias(node.param("scale") * a, mask, node.param("max_bias")), sinks)


def weigh_values(p: Values, v: Values) -> Values:
    """Return p @ v; ignore rows of v with weight 0, even if they are infinite or NaN."""
    finite = np.isfinite(v)
    out: Values = p @ np.where(finite, v, 0)
    for cell in np.flatnonzero(~finite.all(axis=(0, 1, 3))):
        weight, value = p[..., cell, None], np.where(finite, 0, v)[:, :, None, cell]
        out += np.where((weight == 0) | (value == 0), 0, weight * value)
    return out


@table.op("FLASH_ATTN_EXT")
def flash_attn_ext(
    node: Tensor, q: Values, k: Values, v: Values, mask: Values | None, sinks: Values | None = None
) -> Values:
    n_head, cap = q.shape[1], node.param("softcap")
    scores = node.param("scale") * (q @ stretch(k, 1, n_head).swapaxes(-1, -2))
    if cap > 0:
        scores = cap * tanh(scores / cap)
    bias = add_bias(np.zeros(scores.shape), mask, node.param("max_bias"))
    scores = np.where(bias == -np.inf, -np.inf, scores + bias)  # also for NaN in masked keys
    p = weights(scores, sinks)
    p = np.where((scores == -np.inf).all(axis=-1, keepdims=True), 0, p)  # fully masked tokens
    return weigh_values(p, stretch(v, 1, n_head)).swapaxes(1, 2)


@table.op("LIGHTNING_INDEXER")
def lightning_indexer(node: Tensor, q: Values, k: Values, weights: Values, mask: Values) -> Values:
    n_seqs, n_tokens, n_head, d = q.shape
    products = q.reshape(n_seqs, n_tokens * n_head, d) @ k[:, :, 0].swapaxes(1, 2)
    scores = maximum(products, 0).reshape(n_seqs, n_tokens, n_head, -1)
    out = (weights[:, 0, :, None] @ scores)[:, :, 0]
    return out + tile(mask[:, 0], out.shape)

"""Several residual streams: [n_embd, n_stream, n_tokens]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.ops import add, mul, reshape, rms_norm, view
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder


def mixes(g: GraphBuilder, x: Tensor, fn: Tensor) -> Tensor:
    """Multiply all streams of a token, normed together, by fn [n_embd * n_stream, n]. -> [n,
    n_tokens]"""
    flat = reshape(x, x.ne[0] * x.ne[1], x.ne[2])
    return g.mm(fn, rms_norm(flat, g.hp.f_norm_rms_eps))


def stream(x: Tensor, i: int) -> Tensor:
    """Return stream `i` of x as a view, [n_embd, n_tokens]."""
    n_embd, n_stream, n_tokens, _ = x.ne
    return view(x, (n_embd, n_tokens), (n_embd * n_stream,), i * n_embd)


def row(weights: Tensor, i: int) -> Tensor:
    """Return the weights of stream `i` as a view: [n_stream, n_tokens] -> [1, n_tokens]."""
    return view(weights, (1, weights.ne[1]), offset=i)


def sum_streams(x: Tensor, weights: Tensor) -> Tensor:
    """Sum the streams by `weights` [n_stream, n_tokens]. -> [n_embd, n_tokens]"""
    total: Tensor | None = None
    for i in range(x.ne[1]):
        one = mul(stream(x, i), row(weights, i))
        total = one if total is None else add(total, one)
    assert total is not None
    return total


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, weighted="sum_streams")

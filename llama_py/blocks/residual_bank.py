"""Residual streams that later layers mix again (models/kimi-k3.cpp:res_mix)."""

from __future__ import annotations

from ggml_py.ops import (
    add,
    concat,
    cont,
    dsv4_hc_pre,
    mul,
    reshape,
    rms_norm,
    soft_max,
    sum_rows,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder


class Bank:
    """Residual streams that later layers mix with their own. [n_embd, streams, n_tokens]"""

    def __init__(self) -> None:
        self.streams: Tensor | None = None

    def keep(self, stream: Tensor) -> None:
        """Append a stream [n_embd, n_tokens] to the bank."""
        one = reshape(stream, stream.ne[0], 1, stream.ne[1])
        self.streams = one if self.streams is None else concat(self.streams, one, 1)

    def mix(self, g: GraphBuilder, stream: Tensor, score: Tensor | None, il: int = -1) -> Tensor:
        """Mix the banked streams and this one by a softmax of <norm(stream), score>.

        stream [n_embd, n_tokens], score [n_embd] -> [n_embd, n_tokens]
        """
        if self.streams is None or score is None:
            return stream
        n, eps, n_tokens = self.streams.ne[1], g.hp.f_norm_rms_eps, g.n_tokens
        scores = sum_rows(mul(rms_norm(self.streams, eps), score))
        mine = sum_rows(mul(rms_norm(stream, eps), score))
        scores = concat(reshape(scores, n, n_tokens), mine, 0)
        probs = g.cb(soft_max(scores), "res_probs", il)  # [n + 1, n_tokens]
        banked_probs = cont(view(probs, (n, n_tokens)))
        my_prob = cont(view(probs, (1, n_tokens), offset=n))
        return add(dsv4_hc_pre(self.streams, banked_probs), mul(stream, my_prob))

"""Attention with norms of queries and keys over all heads (models/olmo2.cpp, olmoe.cpp,
minimax-m2.cpp)."""

from __future__ import annotations

from ggml_py.ops import concat, cont, div, mul, reshape, scale, sqr, sqrt, sum_rows, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.hparams.shard import Steps
from llama_py.memory.specs import KVCacheSpec
from llama_py.weights import Weights


class NormedRows(Attention):
    """Queries and keys are normed before they are split into heads.

    n_rows  dimensions of the queries, and of the keys, of all heads
    """

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams) -> None:
        shape = hp.layers[w.il]
        sizes = shape.n_embd_q, shape.n_embd_k_gqa
        q_norm, k_norm = (
            Norm(w.tensor(f"attn_{x}_norm.weight", n)) for x, n in zip("qk", sizes, strict=True)
        )
        super().__init__(w, hp, norms=(q_norm, k_norm))
        d = shape.n_embd_head_k
        self.n_rows = d * hp.n_head[w.il], d * hp.n_head_kv[w.il]

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Attend with a share of the heads, first yielding mean squares that need whole rows."""
        q, k, v = self.project(g, cur, il)
        mine = [scale(sum_rows(sqr(x)), 1.0 / n) for x, n in zip((q, k), self.n_rows, strict=True)]
        means = yield concat(mine[0], mine[1], 0)  # [2, n_tokens]
        rows = []
        for i, (x, norm) in enumerate(((q, self.q_norm), (k, self.k_norm))):
            assert norm is not None and norm.weight is not None
            mean = cont(view(means, (1, g.n_tokens), (2,), i))
            rows.append(mul(div(x, sqrt(scale(mean, 1.0, g.hp.f_norm_rms_eps))), norm.weight))
        return self.attend_and_project(g, self._heads(g, QKV(rows[0], rows[1], v), il), il)

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """Project cur [n_embd, n_tokens] to rows of Q, K and V, not split into heads."""
        q, k, v = self.qkv.rows(g, cur, il)
        return QKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        return self._heads(g, super().normalize_heads(g, qkv, il), il)

    def _heads(self, g: GraphBuilder, rows: QKV, il: int) -> QKV:
        sizes = self.qkv.heads
        q, k, v = (reshape(x, *n, g.n_tokens) for x, n in zip(rows, sizes, strict=True))
        return QKV(q, k, g.cb(v, "Vcur", il))

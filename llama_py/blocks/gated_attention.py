"""Full attention with a gate on its result (the part that models/qwen35.cpp, qwen35moe.cpp and
qwen3next.cpp have in common: build_layer_attn)."""

from __future__ import annotations

from ggml_py.ops import cont, mul, reshape, sigmoid, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Projections, attend, attend_within
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.rope import rope
from llama_py.blocks.softmax import Scores
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.memory.specs import KVCacheSpec
from llama_py.weights import Bias, Weights


class GatedAttention:
    """Full attention; each query head includes a gate for its result."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams, bias: Bias = True) -> None:
        self.shape = shape = hp.layers[w.il]
        d = shape.n_embd_head_k
        self.qkv = Projections(  # queries with gates
            w, hp.n_embd, shape, n_embd_head_q=2 * d, bias=bias
        )
        self.q_norm, self.k_norm = w.norm("attn_q_norm", d), w.norm("attn_k_norm", d)
        self.output = w.linear("attn_output", shape.n_embd_q, hp.n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        d, n_head, n_head_kv = (self.shape.n_embd_head_k, self.shape.n_head, self.shape.n_head_kv)
        n_tokens, strides = g.n_tokens, (2 * d, 2 * d * n_head)
        mask, n_kv_max = self.choose(g, cur, il)
        q_gate, k, v = self.qkv.rows(g, cur, il)
        for t, name in ((q_gate, "Qcur_full"), (k, "Kcur_full"), (v, "Vcur_full")):
            g.cb(t, name, il)
        q_gate = self.joint(g, q_gate)
        q = g.cb(view(q_gate, (d, n_head, n_tokens), strides), "Qcur_reshaped", il)
        q = self.q_norm(g, q, "Qcur_normed", il)
        k = self.k_norm(g, reshape(k, d, n_head_kv, n_tokens), "Kcur_normed", il)
        gate = g.cb(view(q_gate, (d, n_head, n_tokens), strides, offset=d), "gate_view", il)
        gate = g.cb(cont(gate, d * n_head, n_tokens), "gate_reshaped", il)
        q = g.cb(rope(g, q, il), "Qcur", il)
        k = g.cb(rope(g, k, il), "Kcur", il)
        v = g.cb(reshape(v, d, n_head_kv, n_tokens), "Vcur", il)
        qkv, how = QKV(q, k, v), Scores(inv_sqrt(d), n_kv_max=n_kv_max)
        cur = attend(g, qkv, il, how, mask) if g.hp.cached else attend_within(g, qkv, il, how)
        g.cb(cur, "attn_pregate", il)  # [d * n_head, n_tokens]
        cur = g.cb(mul(cur, g.cb(sigmoid(gate), "gate_sigmoid", il)), "attn_gated", il)
        return g.cb(self.output(g, cur), "attn_output", il)

    def joint(self, g: GraphBuilder, q_gate: Tensor) -> Tensor:
        """Return joint rows of queries and gates [2 * d * n_head, n_tokens], to be split."""
        return q_gate

    def choose(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor | None, int]:
        """Choose cells to attend to: their mask, and their maximum number. None, 0: all visible
        cells."""
        return None, 0

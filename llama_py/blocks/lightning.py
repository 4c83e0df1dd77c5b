"""Linear attention with a fixed decay rate per head (models/minimax-01.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import (
    add,
    cont,
    cpy,
    exp,
    mul,
    mul_mat,
    permute,
    reshape,
    scale,
    sigmoid,
    silu,
    view,
    view_4d,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.state import cells_1d, read_states, slots
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.decay import InputDecay
from llama_py.weights import Weights


class LightningAttention:
    """Linear attention over a whole ubatch: contributions of the earlier state and of its tokens.
    The state is [d, d, n_head], values by keys, without a convolution.

    T tokens of each of B sequences.
    """

    def __init__(self, w: Weights, n_embd: int, n_head: int, size: int, n_layer: int) -> None:
        n_inner = n_head * size
        self.n_embd, self.n_head, self.size, self.n_inner = n_embd, n_head, size, n_inner
        self.factor = float(np.float32(1.0 - 1.0 * w.il / (n_layer - 1) + 1e-5))
        self.norm = w.norm("attn_norm_2", n_inner)
        self.qkv = w.linear("attn_qkv", n_embd, 3 * n_inner, scaled=False)
        self.gate = w.linear("attn_gate", n_embd, n_inner, scaled=False)
        self.output = w.linear("attn_output", n_inner, n_embd, scaled=False)

    @property
    def n_embd_s(self) -> int:
        """Floats of recurrent state."""
        return self.size * self.n_inner

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape."""
        # llama.cpp reads a convolution state without elements.
        g.expand(read_states(g, g.inp_rs.mctx.get_r_l(il), 0))
        inp: InputDecay = g.shared("decay", lambda: g.add_input(InputDecay(g.params)))
        rate = g.cb(scale(inp.slopes, self.factor), "slope_rate", il)
        n_tokens, n_seqs = g.per_seq
        cur = reshape(cur, cur.ne[0], n_tokens, 1, n_seqs)
        output = self._attend(g, self._heads(g, cur, il), inp, rate, il)
        output = g.cb(cont(permute(output, 0, 2, 1, 3)), "qkv_permuted", il)
        output = reshape(output, self.n_inner, n_tokens, 1, n_seqs)
        normed = self.norm(g, output, "qkv_norm", il)
        gate = g.cb(self.gate(g, cur), "g", il)
        gate = g.cb(sigmoid(gate), "g_sigm", il)
        cur = g.cb(self.output(g, mul(gate, normed)), "attn_out", il)
        return g.cb(reshape(cur, self.n_embd, g.n_tokens), "attn_out", il)

    def _heads(self, g: GraphBuilder, cur: Tensor, il: int) -> list[Tensor]:
        """Project cur [n_embd, 1, T, B] to queries, keys and values, each [d, n_head, T, B]."""
        d, n_head = self.size, self.n_head
        x = g.cb(self.qkv(g, cur), "QKVcur", il)
        x = g.cb(silu(x), "QKVcur_silu", il)
        x = reshape(x, 3 * d, n_head, *g.per_seq)
        parts = [view_4d(x, d, *x.ne[1:], *x.nb[1:], i * d * x.nb[0]) for i in range(3)]
        names = ("Qcur", "Kcur", "Vcur")
        return [g.cb(t, name, il) for t, name in zip(parts, names, strict=True)]

    def _attend(
        self, g: GraphBuilder, qkv: list[Tensor], inp: InputDecay, rate: Tensor, il: int
    ) -> Tensor:
        """Attend with decay `rate` F32 [n_head] and store states. -> [d, T, n_head, B]"""
        q, k, v = qkv
        states = g.inp_rs.mctx.get_s_l(il)
        old = read_states(g, states, self.n_embd_s)
        old = reshape(old, self.size, self.size, self.n_head, g.ubatch.n_seqs)
        g.cb(old, "kv_old", il)
        q_decay, k_decay, diag = (
            g.cb(exp(scale(t, self.factor)), name, il)
            for t, name in ((inp.q, "q_decay"), (inp.k, "k_decay"), (inp.diag, "diag_decay"))
        )
        q_s = g.cb(mul(q, q_decay), "q_s", il)
        q_s = g.cb(permute(q_s, 0, 2, 1, 3), "q_s_trans", il)
        before = g.cb(mul_mat(old, q_s), "qkv_none_diag", il)
        q = g.cb(permute(q, 0, 2, 1, 3), "q_trans", il)
        qk = mul_mat(g.cb(permute(k, 0, 2, 1, 3), "k_trans", il), q)
        qk = g.cb(mul(g.cb(qk, "qk", il), diag), "qk_s", il)
        v = g.cb(cont(permute(v, 1, 2, 0, 3)), "v_trans", il)  # [T, d, n_head, B]
        within = g.cb(mul_mat(v, qk), "qkv_diag", il)
        output = g.expand(g.cb(add(before, within), "qkv", il))
        for slot in slots(g):
            new = self._state(g, old, k, v, k_decay, rate, slot, il)
            g.expand(cpy(new, cells_1d(g, states, self.n_embd_s, slot)))
        return output

    def _state(
        self,
        g: GraphBuilder,
        old: Tensor,
        k: Tensor,
        v: Tensor,
        k_decay: Tensor,
        rate: Tensor,
        slot: int,
        il: int,
    ) -> Tensor:
        """Return the state before the last `slot` tokens, shaped like `old`. old [d, d, n_head, B],
        k [d, n_head, T, B], v [T, d, n_head, B], k_decay [1, n_head, T, B]"""
        n = g.per_seq[0] - slot
        if slot:  # decays count from the end
            k, v = view(k, (*k.ne[:2], n, k.ne[3])), view(v, (n, *v.ne[1:]))
            k_decay = view(k_decay, (1, self.n_head, n, k.ne[3]), offset=slot * self.n_head)
        whole = g.cb(scale(rate, -1.0 * n), "slopes_neg", il)
        whole = g.cb(exp(whole), "block_decay", il)
        whole = g.cb(reshape(whole, 1, 1, self.n_head), "block_decay_3d", il)
        kept = g.cb(mul(old, whole), "kv_old_s", il)
        k = g.cb(mul(k, k_decay), "k_after_decay", il)
        k = g.cb(cont(permute(k, 1, 2, 0, 3)), "k_after_decay_trans", il)
        added = g.cb(mul_mat(k, v), "kv_cur", il)
        return g.cb(add(kept, added), "kv_new", il)

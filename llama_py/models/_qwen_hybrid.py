"""Decoders whose layers are mostly gated delta nets and now and then full attention with a gate
(the part that models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp have in common)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from ggml_py.ops import add, cont, mul, repeat_4d, reshape, sigmoid, silu, softplus, ssm_conv, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Projections, attend
from llama_py.blocks.delta_net import (
    DELTA_NET,
    Delta,
    build_conv_state,
    build_recurrent_attn,
    l2_norm,
)
from llama_py.blocks.functions import heads, inv_sqrt
from llama_py.blocks.rope import rope
from llama_py.blocks.softmax import Scores
from llama_py.blocks.state import read_states
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import Keys, number, uint
from llama_py.models._decoder import Block, Layer
from llama_py.models._nextn import DRAFT_NAMES, DraftingDecoder
from llama_py.weights import Weights


class HybridHParams(HParams):
    """The delta net's sizes under their ssm names.

    ssm_d_state  head size S; ssm_dt_rank  value heads H; ssm_n_group  key heads H_k
    """

    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    ssm_d_conv: int = uint("ssm.conv_kernel", least=1)
    ssm_d_inner: int = uint("ssm.inner_size", least=1)
    ssm_d_state: int = uint("ssm.state_size", least=1)
    ssm_dt_rank: int = uint("ssm.time_step_rank", least=1)
    ssm_n_group: int = uint("ssm.group_count", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.ssm_d_inner != self.ssm_d_state * self.ssm_dt_rank:
            raise keys.error("ssm.inner_size", "it must be state_size times time_step_rank")
        if self.ssm_dt_rank % self.ssm_n_group:
            raise keys.error("ssm.group_count", f"it must divide time_step_rank {self.ssm_dt_rank}")
        self.key_dim = self.ssm_d_state * self.ssm_n_group
        self.value_dim = self.ssm_d_inner
        self.conv_dim = 2 * self.key_dim + self.value_dim
        self.n_embd_r = (self.ssm_d_conv - 1) * self.conv_dim
        self.n_embd_s = self.ssm_d_state * self.ssm_d_inner
        self.recurrent_layers = self._load_recurrent_layers(keys)

    def _load_recurrent_layers(self, keys: Keys) -> tuple[bool, ...]:
        if keys.has("attention.recurrent_layers"):
            return keys.flags("attention.recurrent_layers", self.n_layer_all)
        every = keys.uint("full_attention_interval", 4)
        if every == 0:
            raise keys.error("full_attention_interval", "it must be at least 1")
        return tuple((il + 1) % every != 0 for il in range(self.n_layer_all))

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.recurrent_layers[il]


class GatedAttention:
    """Full attention; each query head comes with a gate for its result.

    joint_4d  the row of queries and gates is reshaped first
    """

    def __init__(self, w: Weights, hp: HybridHParams, joint_4d: bool = False) -> None:
        self.shape = shape = hp.layers[w.il]
        d = shape.n_embd_head_k
        self.qkv = Projections(w, hp.n_embd, shape, n_embd_head_q=2 * d)  # queries with gates
        self.q_norm, self.k_norm = w.norm("attn_q_norm", d), w.norm("attn_k_norm", d)
        self.output = w.linear("attn_output", shape.n_embd_q, hp.n_embd)
        self.joint_4d = joint_4d

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        d, n_head, n_head_kv = (
            self.shape.n_embd_head_k, self.shape.n_head, self.shape.n_head_kv
        )  # fmt: skip
        n_tokens, strides = g.n_tokens, (2 * d, 2 * d * n_head)
        q_gate, k, v = self.qkv.rows(g, cur, il)
        for t, name in ((q_gate, "Qcur_full"), (k, "Kcur_full"), (v, "Vcur_full")):
            g.cb(t, name, il)
        if self.joint_4d and g.params.gtype == "decoder":
            q_gate = reshape(q_gate, 2 * d, n_head, n_tokens, 1)
        q = g.cb(view(q_gate, (d, n_head, n_tokens), strides), "Qcur_reshaped", il)
        q = self.q_norm(g, q, "Qcur_normed", il)
        k = self.k_norm(g, reshape(k, d, n_head_kv, n_tokens), "Kcur_normed", il)
        gate = g.cb(view(q_gate, (d, n_head, n_tokens), strides, offset=d), "gate_view", il)
        gate = g.cb(cont(gate, d * n_head, n_tokens), "gate_reshaped", il)
        q = g.cb(rope(g, q, il), "Qcur", il)
        k = g.cb(rope(g, k, il), "Kcur", il)
        v = g.cb(reshape(v, d, n_head_kv, n_tokens), "Vcur", il)
        cur = attend(g, QKV(q, k, v), il, Scores(inv_sqrt(d)))
        g.cb(cur, "attn_pregate", il)  # [d * n_head, n_tokens]
        cur = g.cb(mul(cur, g.cb(sigmoid(gate), "gate_sigmoid", il)), "attn_gated", il)
        return g.cb(self.output(g, cur), "attn_output", il)


class Projected(NamedTuple):
    """What a delta net layer makes of its input; T = n_seq_tokens, B = n_seqs."""

    qkv: Tensor  # [conv_dim, T, B]
    z: Tensor  # [value_dim, n_tokens]
    beta: Tensor  # [1, H, T, B]
    gate: Tensor  # [1, H, T, B] log of the decay


class LinearAttention:
    """Short convolution, gated delta rule, gated norm."""

    def __init__(self, w: Weights, hp: HybridHParams) -> None:
        self.hp = hp
        self.declare_projections(w)
        self.conv1d = w.tensor("ssm_conv1d.weight", hp.ssm_d_conv, hp.conv_dim)
        self.dt = w.tensor("ssm_dt.bias", hp.ssm_dt_rank)
        self.a = w.tensor("ssm_a", hp.ssm_dt_rank)
        self.norm = w.norm("ssm_norm", hp.ssm_d_state)

    def declare_projections(self, w: Weights) -> None:
        hp, n_embd, n_head = self.hp, self.hp.n_embd, self.hp.ssm_dt_rank
        self.in_qkv = w.linear("attn_qkv", n_embd, hp.conv_dim)
        self.in_z = w.linear("attn_gate", n_embd, hp.value_dim)
        self.in_beta = w.linear("ssm_beta", n_embd, n_head)
        self.in_alpha = w.linear("ssm_alpha", n_embd, n_head)
        self.out = w.linear("ssm_out", hp.value_dim, n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        hp, n_seqs, mctx = self.hp, g.ubatch.n_seqs, g.inp_rs.mctx
        size, n_head = hp.ssm_d_state, hp.ssm_dt_rank
        x = self.project(g, cur, il)
        conv_states, states = mctx.get_r_l(il), mctx.get_s_l(il)
        conv_input = build_conv_state(g, conv_states, x.qkv, hp.ssm_d_conv, il)
        state = read_states(g, states, hp.n_embd_s)
        state = g.cb(reshape(state, size, size, n_head, n_seqs), "state_predelta", il)
        conv = g.cb(ssm_conv(conv_input, self.conv1d), "conv_output_raw", il)
        conv = g.cb(silu(conv), "conv_output_silu", il)  # [conv_dim, T, B]
        q, k, v = self.split_qkv(g, conv, il)
        output = build_recurrent_attn(g, states, Delta(q, k, v, x.gate, x.beta), state, il)
        z = reshape(x.z, size, n_head, *g.per_seq)
        output = mul(self.norm(g, output, il=il), silu(z))  # [S, H, T, B]
        output = reshape(output, hp.value_dim, *g.per_seq)
        cur = self.out(g, g.cb(output, "final_output", il))
        return reshape(g.cb(cur, "linear_attn_out", il), hp.n_embd, g.n_tokens)

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> Projected:
        """[n_embd, n_tokens] -> the inputs of the delta net"""
        n_head = self.hp.ssm_dt_rank
        qkv, z = self.qkvz(g, cur, il)
        beta = reshape(self.in_beta(g, cur), 1, n_head, *g.per_seq)
        beta = g.cb(sigmoid(g.cb(beta, "beta", il)), "beta_sigmoid", il)
        alpha = reshape(self.in_alpha(g, cur), n_head, *g.per_seq)
        alpha = add(g.cb(alpha, "alpha", il), self.dt)
        return Projected(qkv, z, beta, self.gate_of(g, alpha, il))

    def gate_of(self, g: GraphBuilder, alpha: Tensor, il: int) -> Tensor:
        """[H, T, B] -> the log of the decay [1, H, T, B]"""
        gate = mul(g.cb(softplus(alpha), "a_softplus", il), self.a)
        return reshape(g.cb(gate, "gate", il), 1, self.hp.ssm_dt_rank, *g.per_seq)

    def qkvz(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """-> input of the convolution [conv_dim, T, B], z [value_dim, n_tokens]"""
        qkv = self.in_qkv(g, cur)
        qkv = g.cb(reshape(qkv, qkv.ne[0], *g.per_seq), "linear_attn_qkv_mixed", il)
        return qkv, g.cb(self.in_z(g, cur), "z", il)

    def split_qkv(self, g: GraphBuilder, conv: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """[conv_dim, T, B] -> normed queries and keys [S, H_k, T, B], values [S, H, T, B]"""
        hp, size, n_group = self.hp, self.hp.ssm_d_state, self.hp.ssm_n_group
        q = g.cb(heads(conv, size, n_group, *g.per_seq), "q_conv", il)
        k = g.cb(heads(conv, size, n_group, *g.per_seq, offset=hp.key_dim), "k_conv", il)
        v = heads(conv, size, hp.ssm_dt_rank, *g.per_seq, offset=2 * hp.key_dim)
        v = g.cb(v, "v_conv", il)
        q, k = (self.repeat_heads(g, l2_norm(g, t)) for t in (q, k))
        g.cb(q, "q_conv_predelta", il)
        g.cb(k, "k_conv_predelta", il)
        return q, k, g.cb(v, "v_conv_predelta", il)

    def repeat_heads(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Key heads repeated to the number of value heads, unless the fused op does that itself.

        [S, H_k, T, B] -> [S, H, T, B]; value head h uses key head h mod H_k
        """
        n_head = self.hp.ssm_dt_rank
        if x.ne[1] == n_head or g.form(DELTA_NET) == "fused":
            return x
        return repeat_4d(x, x.ne[0], n_head, x.ne[2], x.ne[3])


NAMES = {
    "embd": "model.input_embed", "Kcur_full": "Kcur", "Vcur_full": "Vcur", "gate_view": "",
    "ffn_inp": "attn_residual", "ffn_norm": "attn_post_norm",
}  # fmt: skip


class Hybrid(DraftingDecoder):
    """Linear: the block of layers that are not full attention; joint_4d: see GatedAttention."""

    hp: HybridHParams
    names = NAMES
    draft_names = DRAFT_NAMES
    supports_rs_rollback = True
    Linear: ClassVar[type[LinearAttention]] = LinearAttention
    joint_4d: ClassVar[bool] = False

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent = hp.layers[il].recurrent
        return Layer(
            w.norm("attn_norm", n_embd),
            self.Linear(w, hp) if recurrent else GatedAttention(w, hp, self.joint_4d),
            w.norm("post_attention_norm", n_embd),
            self.feed_forward(w, il),
            expanded=True,
        )

    @abstractmethod
    def feed_forward(self, w: Weights, il: int) -> Block:
        """The block of a layer after its attention."""

    def selects_early(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

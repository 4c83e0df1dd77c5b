"""Decoders whose layers are mostly gated delta nets and now and then full attention with a gate
(the part that models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp have in common)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from ggml_py.ops import (
    add,
    cont,
    get_rows,
    mul,
    repeat_4d,
    reshape,
    sigmoid,
    silu,
    softplus,
    ssm_conv,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.hparams import HParams, Keys
from llama_py.inputs import InputAttnKV, InputRS
from llama_py.models._attention import QKV
from llama_py.models._base import Model
from llama_py.models._delta_net import DeltaNet
from llama_py.models._graph import inv_sqrt
from llama_py.weights import LayerLoader, WeightLoader


class HybridHParams(HParams):
    """The delta net's sizes under their ssm names.

    ssm_d_state  head size S; ssm_dt_rank  value heads H; ssm_n_group  key heads H_k
    """

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)
        names = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
        sizes = [keys.uint(f"ssm.{name}") for name in names]
        for name, size in zip(names, sizes, strict=True):
            if size == 0:
                raise keys.error(f"ssm.{name}", "it must be at least 1")
        self.ssm_d_conv, self.ssm_d_inner, self.ssm_d_state, *heads = sizes
        self.ssm_dt_rank, self.ssm_n_group = heads
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
            flags = keys.flags("attention.recurrent_layers", self.n_layer_all)
        else:
            every = keys.uint("full_attention_interval", 4)
            if every == 0:
                raise keys.error("full_attention_interval", "it must be at least 1")
            flags = tuple((il + 1) % every != 0 for il in range(self.n_layer_all))
        return tuple(flag and il < self.n_layer for il, flag in enumerate(flags))


class HybridModel(Model):
    memory = "hybrid"
    supports_rs_rollback = True
    hparams: HybridHParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp = self.hparams
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            self.load_block(w.layer(il), il)
        nextn = range(hp.n_layer, hp.n_layer_all)
        if self.load_mtp:
            for il in nextn:
                self.load_nextn(w.layer(il), il)
        else:
            w.skip_layers(nextn)

    def load_block(self, t: LayerLoader, il: int) -> None:
        """A layer of the trunk."""
        t.norm("attn_norm", self.hparams.n_embd)
        t.norm("post_attention_norm", self.hparams.n_embd)
        if self.hparams.is_recr(il):
            self.load_linear_attention(t)
        else:
            self.load_attention(t, il)
        self.load_feed_forward(t, il)

    def load_attention(self, t: LayerLoader, il: int) -> None:
        hp, n_embd, n_embd_head = self.hparams, self.hparams.n_embd, self.hparams.n_embd_head_k
        n_embd_q = n_embd_head * hp.n_head(il)
        t.qkv(n_embd, 2 * n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))  # queries with gates
        t.matrix("attn_output", n_embd_q, n_embd)
        t.norm("attn_q_norm", n_embd_head)
        t.norm("attn_k_norm", n_embd_head)

    def load_linear_attention(self, t: LayerLoader) -> None:
        hp, n_embd, n_head = self.hparams, self.hparams.n_embd, self.hparams.ssm_dt_rank
        t.matrix("attn_qkv", n_embd, hp.conv_dim)
        t.matrix("attn_gate", n_embd, hp.value_dim)
        t.tensor("ssm_conv1d.weight", hp.ssm_d_conv, hp.conv_dim, use="SSM_CONV")
        t.tensor("ssm_dt.bias", n_head, use="ADD")
        t.tensor("ssm_a", n_head, use="MUL")
        t.matrix("ssm_beta", n_embd, n_head)
        t.matrix("ssm_alpha", n_embd, n_head)
        t.norm("ssm_norm", hp.ssm_d_state)
        t.matrix("ssm_out", hp.value_dim, n_embd)

    def load_nextn(self, t: LayerLoader, il: int) -> None:
        """A layer that drafts: full attention and feed-forward, fed with a token and the state
        before it."""
        n_embd, n_vocab = self.hparams.n_embd, self.hparams.n_vocab
        self.load_block(t, il)
        t.matrix("nextn.eh_proj", 2 * n_embd, n_embd)
        t.norm("nextn.enorm", n_embd)
        t.norm("nextn.hnorm", n_embd)
        t.tensor("nextn.embed_tokens.weight", n_embd, n_vocab, use="GET_ROWS", optional=True)
        t.matrix("nextn.shared_head_head", n_embd, n_vocab, optional=True)
        t.norm("nextn.shared_head_norm", n_embd, optional=True)

    @abstractmethod
    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        """Declare what `feed_forward` of the graph reads."""


class Projections(NamedTuple):
    """What a delta net layer makes of its input; T = n_seq_tokens, B = n_seqs."""

    qkv: Tensor  # [conv_dim, T, B]
    z: Tensor  # [value_dim, n_tokens]
    beta: Tensor  # [1, H, T, B]
    gate: Tensor  # [1, H, T, B] log of the decay


class HybridGraph(DeltaNet):
    model: HybridModel
    hparams: HybridHParams
    names: Mapping[str, str] = {"Kcur_full": "Kcur", "Vcur_full": "Vcur", "gate_view": ""}

    def build(self) -> None:
        layers = self.model.layers
        cur = self.cb(self.build_inp_embd(self.model.token_embd), "model.input_embed")
        inp = self.build_inp_mem_hybrid()
        inp_pos = self.build_inp_pos()
        inp_out_ids = self.build_inp_out_ids()
        masked = self.cparams.embeddings_nextn_masked
        for il in range(self.n_layer):
            residual = cur
            cur = self.cb(self.build_norm(cur, layers[il].attn_norm, il), "attn_norm", il)
            self.expand(cur)
            if self.hparams.is_recr(il):
                cur = self.linear_attention(cur, inp.recr, il)
            else:
                cur = self.attention(cur, inp.attn, inp_pos, il)
            if masked and il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            residual = self.cb(add(cur, residual), "attn_residual", il)
            cur = self.build_norm(residual, layers[il].post_attention_norm, il)
            cur = self.feed_forward(self.cb(cur, "attn_post_norm", il), il)
            cur = self.layer_out(add(self.cb(cur, "ffn_out", il), residual), il)
        # The normed state feeds the head, and the NextN layer of a draft context.
        cur = self.cb(self.build_norm(cur, self.model.output_norm), "h_nextn")
        self.res.t_h_nextn = cur
        if not masked:
            cur = get_rows(cur, inp_out_ids)
        self.res.t_embd = self.cb(cur, "result_norm")
        self.build_head(cur)  # [n_vocab, n_outputs]

    @abstractmethod
    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        """[n_embd, n] -> the same"""

    def attention(self, cur: Tensor, inp: InputAttnKV, inp_pos: Tensor, il: int) -> Tensor:
        """Full attention; each query head comes with a gate for its result."""
        layer, hp = self.model.layers[il], self.hparams
        d, n_head, n_head_kv = hp.n_embd_head_k, hp.n_head(il), hp.n_head_kv(il)
        n_tokens, strides = self.n_tokens, (2 * d, 2 * d * n_head)
        q_gate, k, v = self.build_qkv(layer, cur, il, n_embd_head_q=2 * d, split_heads=False)
        for t, name in ((q_gate, "Qcur_full"), (k, "Kcur_full"), (v, "Vcur_full")):
            self.cb(t, name, il)
        q_gate = self.joint_heads(q_gate, 2 * d, n_head)
        q = self.cb(view(q_gate, (d, n_head, n_tokens), strides), "Qcur_reshaped", il)
        q = self.cb(self.build_norm(q, layer.attn_q_norm, il), "Qcur_normed", il)
        k = self.build_norm(reshape(k, d, n_head_kv, n_tokens), layer.attn_k_norm, il)
        self.cb(k, "Kcur_normed", il)
        gate = self.cb(view(q_gate, (d, n_head, n_tokens), strides, offset=d), "gate_view", il)
        gate = self.cb(cont(gate, d * n_head, n_tokens), "gate_reshaped", il)
        q = self.cb(self.build_rope(q, inp_pos), "Qcur", il)
        k = self.cb(self.build_rope(k, inp_pos), "Kcur", il)
        v = self.cb(reshape(v, d, n_head_kv, n_tokens), "Vcur", il)
        cur = self.build_attn(inp, None, QKV(q, k, v), il, kq_scale=inv_sqrt(d))
        self.cb(cur, "attn_pregate", il)  # [d * n_head, n_tokens]
        cur = self.cb(mul(cur, self.cb(sigmoid(gate), "gate_sigmoid", il)), "attn_gated", il)
        return self.cb(self.build_mm(layer.attn_output, cur), "attn_output", il)

    def joint_heads(self, q_gate: Tensor, n_embd_head: int, n_head: int) -> Tensor:
        """What queries and gates are views of. [n_embd_head * n_head, n_tokens]"""
        return q_gate

    def linear_attention(self, cur: Tensor, inp: InputRS, il: int) -> Tensor:
        """Short convolution, gated delta rule, gated norm. [n_embd, n_tokens] -> the same"""
        layer, hp, n_seqs = self.model.layers[il], self.hparams, self.ubatch.n_seqs
        size, n_head, n_seq_tokens = hp.ssm_d_state, hp.ssm_dt_rank, self.ubatch.n_seq_tokens
        x = self.projections(cur, il)
        conv_states, states = inp.mctx.get_r_l(il), inp.mctx.get_s_l(il)
        conv_input = self.build_conv_state(inp, conv_states, x.qkv, hp.ssm_d_conv, il)
        state = self.build_rs(inp, states, hp.n_embd_s, n_seqs)
        state = self.cb(reshape(state, size, size, n_head, n_seqs), "state_predelta", il)
        conv = self.cb(ssm_conv(conv_input, layer.ssm_conv1d), "conv_output_raw", il)
        conv = self.cb(silu(conv), "conv_output_silu", il)  # [conv_dim, T, B]
        q, k, v = self.split_qkv(conv, il)
        output = self.build_recurrent_attn(inp, states, q, k, v, x.gate, x.beta, state, il)
        z = reshape(x.z, size, n_head, n_seq_tokens, n_seqs)
        output = mul(self.build_norm(output, layer.ssm_norm, il), silu(z))  # [S, H, T, B]
        output = reshape(output, hp.value_dim, n_seq_tokens, n_seqs)
        cur = self.build_mm(layer.ssm_out, self.cb(output, "final_output", il))
        return reshape(self.cb(cur, "linear_attn_out", il), self.n_embd, self.n_tokens)

    def projections(self, cur: Tensor, il: int) -> Projections:
        """[n_embd, n_tokens] -> the inputs of the delta net"""
        layer, n_head = self.model.layers[il], self.hparams.ssm_dt_rank
        per_seq = (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        qkv, z = self.build_qkvz(cur, il)
        beta = reshape(self.build_mm(layer.ssm_beta, cur), 1, n_head, *per_seq)
        beta = self.cb(sigmoid(self.cb(beta, "beta", il)), "beta_sigmoid", il)
        alpha = reshape(self.build_mm(layer.ssm_alpha, cur), n_head, *per_seq)
        alpha = add(self.cb(alpha, "alpha", il), layer.ssm_dt)
        gate = mul(self.cb(softplus(alpha), "a_softplus", il), layer.ssm_a)
        gate = reshape(self.cb(gate, "gate", il), 1, n_head, *per_seq)
        return Projections(qkv, z, beta, gate)

    def build_qkvz(self, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """-> input of the convolution [conv_dim, T, B], z [value_dim, n_tokens]"""
        layer, per_seq = self.model.layers[il], (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        qkv = self.build_mm(layer.attn_qkv, cur)
        qkv = self.cb(reshape(qkv, qkv.ne[0], *per_seq), "linear_attn_qkv_mixed", il)
        return qkv, self.cb(self.build_mm(layer.attn_gate, cur), "z", il)

    def split_qkv(self, conv: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """[conv_dim, T, B] -> normed queries and keys [S, H_k, T, B], values [S, H, T, B]"""
        hp, size = self.hparams, self.hparams.ssm_d_state
        n_seq_tokens, n_seqs = self.ubatch.n_seq_tokens, self.ubatch.n_seqs
        strides = (size, hp.conv_dim, hp.conv_dim * n_seq_tokens)
        key_ne = (size, hp.ssm_n_group, n_seq_tokens, n_seqs)
        value_ne = (size, hp.ssm_dt_rank, n_seq_tokens, n_seqs)
        q = self.cb(view(conv, key_ne, strides), "q_conv", il)
        k = self.cb(view(conv, key_ne, strides, hp.key_dim), "k_conv", il)
        v = self.cb(view(conv, value_ne, strides, 2 * hp.key_dim), "v_conv", il)
        q, k = (self.repeat_heads(self.build_l2_norm(t)) for t in (q, k))
        self.cb(q, "q_conv_predelta", il)
        self.cb(k, "k_conv_predelta", il)
        return q, k, self.cb(v, "v_conv_predelta", il)

    def repeat_heads(self, x: Tensor) -> Tensor:
        """Key heads repeated to the number of value heads, unless the fused op does that itself.

        [S, H_k, T, B] -> [S, H, T, B]; value head h uses key head h mod H_k
        """
        n_head = self.hparams.ssm_dt_rank
        if x.ne[1] == n_head or self.cparams.delta_net == "fused":
            return x
        return repeat_4d(x, x.ne[0], n_head, x.ne[2], x.ne[3])

"""Latent attention and the experts that go with it (the part that models/deepseek2.cpp,
kimi-linear.cpp and kimi-k3.cpp have in common).

Keys and values of all heads are made of one latent vector per token. What is cached is the latent
vector (queries and results are then projected into its space, "absorbed"), or, with the older files
that have both projections in one matrix, the keys and values of every head.
"""

from __future__ import annotations

from typing import Any

from ggml_py.ops import add, concat, cont, mul_mat, permute, repeat_4d, reshape, view
from ggml_py.tensor import Tensor
from llama_py.hparams import HParams, Keys
from llama_py.models._attention import QKV, Attention
from llama_py.models._base import Model
from llama_py.models._ffn import GATING, FeedForward
from llama_py.weights import Layer, LayerLoader, Linear, WeightLoader

GATING_FUNCS = tuple(GATING)  # by llama-hparams.h:llama_expert_gating_func_type, from 1


class MLAHParams(HParams):
    """Sizes of latent attention, and how experts are weighed.

    n_lora_kv   of the latent vector; n_lora_q of the queries', where they have one
    n_embd_head_k_mla, n_embd_head_v_mla   of a head's keys and values once unpacked; the last n_rot
                channels of the keys are one part that all heads share
    absorbed    whether latent vectors are cached
    """

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.n_lora_kv = keys.uint("attention.kv_lora_rank")
        self.n_lora_q = keys.uint("attention.q_lora_rank", 0)
        self.n_embd_head_k_mla = keys.uint("attention.key_length_mla", 0) or self.n_embd_head_k
        self.n_embd_head_v_mla = keys.uint("attention.value_length_mla", 0) or self.n_embd_head_v
        self.n_embd_nope = self.n_embd_head_k_mla - self.n_rot
        if not self.n_head():
            raise keys.error("attention.head_count", "it must be at least 1")
        if self.n_lora_kv == 0:
            raise keys.error("attention.kv_lora_rank", "it must be at least 1")
        if self.n_rot == 0 or self.n_embd_nope < 1:
            raise keys.error(
                "rope.dimension_count", f"it must be from 2 to {self.n_embd_head_k_mla - 1}"
            )
        self.set_absorbed(True)
        self._load_moe(keys)

    def set_absorbed(self, absorbed: bool) -> None:
        """Known once the file's tensors are."""
        self.absorbed = absorbed
        self.rope_offset = self.n_lora_kv if absorbed else self.n_embd_nope

    def kv_heads(self, il: int) -> tuple[int, int, int]:
        if self.absorbed:
            return 1, self.n_lora_kv + self.n_rot, 0
        return self.n_head(), self.n_embd_head_k_mla, self.n_embd_head_v_mla

    def _load_moe(self, keys: Keys) -> None:
        self.n_layer_dense_lead = keys.uint("leading_dense_block_count", 0)
        self.expert_weights_scale = keys.number("expert_weights_scale", 0.0)
        self.expert_weights_norm = keys.flag("expert_weights_norm", False)
        number = keys.uint("expert_gating_func", 0) or self.default_gating(keys)
        if number > len(GATING_FUNCS):
            raise keys.error("expert_gating_func", f"it must be from 1 to {len(GATING_FUNCS)}")
        self.expert_gating_func = GATING_FUNCS[number - 1]
        self.n_ff_exp = keys.uints("expert_feed_forward_length", self.n_layer_all)[0]
        self.n_expert_shared = keys.uint("expert_shared_count")
        self.n_ff_shexp = self.n_ff_exp * max(1, self.n_expert_shared)
        if self.n_expert == 0 and self.n_layer_dense_lead < self.n_layer:
            raise keys.error("expert_count", "it must be at least 1")

    def default_gating(self, keys: Keys) -> int:
        """What expert_gating_func is where the file does not say."""
        raise keys.error("expert_gating_func", f"it must be from 1 to {len(GATING_FUNCS)}")


class MLAModel(Model):
    hparams: MLAHParams

    def choose_form(self, w: WeightLoader) -> None:
        """To be called before the layers are declared."""
        unsplit = any(name.endswith(".attn_kv_b.weight") for name in w.infos)
        self.hparams.set_absorbed(not unsplit)

    def load_mla(self, t: LayerLoader) -> None:
        """The weights of `latent_attention`; as llama.cpp, without scales."""
        hp, n_embd, n_head = self.hparams, self.hparams.n_embd, self.hparams.n_head()
        n_q, n_lora = n_head * hp.n_embd_head_k_mla, hp.n_lora_kv
        compressed = t.has("attn_q_a.weight") or t.has("attn_q_a_norm.weight")
        t.matrix("attn_q", n_embd, n_q, scaled=False, optional=compressed)
        if compressed:
            t.norm("attn_q_a_norm", hp.n_lora_q)
            t.matrix("attn_q_a", n_embd, hp.n_lora_q, scaled=False)
            t.matrix("attn_q_b", hp.n_lora_q, n_q, scaled=False)
        t.matrix("attn_kv_a_mqa", n_embd, n_lora + hp.n_rot, scaled=False)
        t.norm("attn_kv_a_norm", n_lora)
        nope, d_v = hp.n_embd_nope, hp.n_embd_head_v_mla
        if hp.absorbed:
            t.matrix("attn_k_b", nope, n_lora, n_head, use="MUL_MAT", scaled=False)
            t.matrix("attn_v_b", n_lora, d_v, n_head, use="MUL_MAT", scaled=False)
        else:
            t.matrix("attn_kv_b", n_lora, n_head * (nope + d_v), scaled=False)

    def load_feed_forward(self, t: LayerLoader, il: int, *, need_shexp: bool, need_b: bool) -> None:
        """need_shexp, need_b: whether shared experts, and a bias on the choice, must be there."""
        hp, n_embd, n_expert = self.hparams, self.hparams.n_embd, self.hparams.n_expert
        t.norm("ffn_norm", n_embd)
        if il < hp.n_layer_dense_lead:
            t.gated_ffn(n_embd, hp.n_ff(il), scaled=False)
            return
        t.matrix("ffn_gate_inp", n_embd, n_expert)
        t.matrix("ffn_down_exps", hp.n_ff_exp, n_embd, n_expert, scaled=False)
        t.gate_up_exps(n_embd, hp.n_ff_exp, n_expert, scaled=False)
        t.gated_ffn(n_embd, hp.n_ff_shexp, "_shexp", scaled=False, optional=not need_shexp)
        t.tensor("exp_probs_b.bias", n_expert, use="ADD", optional=not need_b)


class MLA(Attention, FeedForward):
    """Blocks of layers with latent attention."""

    model: MLAModel
    hparams: MLAHParams

    def latent_attention(
        self, inp: Any, wo: Linear | None, cur: Tensor, il: int, *, kq_scale: float
    ) -> Tensor:
        """cur [n_embd, n_tokens] -> the same, without wo [n_embd_head_v_mla * n_head, n_tokens]

        inp   an InputAttnK if latent vectors are cached, else an InputAttnKV
        """
        layer, hp = self.model.layers[il], self.hparams
        q = self.split_queries(self.build_queries(layer, cur, il), il)
        kv = self.cb(self.build_mm(layer.attn_kv_a_mqa, cur), "kv_cmpr_pe", il)
        latent = self.cb(view(kv, (hp.n_lora_kv, self.n_tokens)), "kv_cmpr", il)
        row = kv.ne[0]
        k_pe = view(kv, (hp.n_rot, 1, self.n_tokens), (row, row), hp.n_lora_kv)
        k_pe = self.cb(self.turn(self.cb(k_pe, "k_pe", il)), "k_pe", il)
        latent = self.cb(self.build_norm(latent, layer.attn_kv_a_norm, il), "kv_cmpr", il)
        if not hp.absorbed:
            qkv = self._unpacked(layer, q, latent, k_pe, il)
            return self.build_attn(inp, wo, qkv, il, kq_scale=kq_scale)
        qkv, v_mla = self._absorbed(layer, q, latent, k_pe, il), layer.attn_v_b.weight
        return self.build_attn_k(inp, wo, qkv, il, kq_scale=kq_scale, v_mla=v_mla)

    def turn(self, x: Tensor, offset: int = 0) -> Tensor:
        """x [d, H, n_tokens] with the n_rot channels from `offset` on rotated by position; here
        none are."""
        return x

    def temper(self, q: Tensor, il: int) -> Tensor:
        """Queries [d, n_head, n_tokens] scaled by position; here they are not."""
        return q

    def build_queries(self, layer: Layer, cur: Tensor, il: int) -> Tensor:
        """-> [n_embd_head_k_mla * n_head, n_tokens], by way of a small vector if there is one"""
        if layer.attn_q is not None:
            return self.cb(self.build_mm(layer.attn_q, cur), "q", il)
        q = self.cb(self.build_mm(layer.attn_q_a, cur), "q", il)
        q = self.cb(self.build_norm(q, layer.attn_q_a_norm, il), "q", il)
        return self.cb(self.build_mm(layer.attn_q_b, q), "q", il)

    def split_queries(self, q: Tensor, il: int) -> Tensor:
        """-> [n_embd_head_k_mla, n_head, n_tokens]"""
        hp = self.hparams
        return self.cb(reshape(q, hp.n_embd_head_k_mla, hp.n_head(), self.n_tokens), "q", il)

    def _absorbed(self, layer: Layer, q: Tensor, latent: Tensor, k_pe: Tensor, il: int) -> QKV:
        """Queries in the latent space: then there is one head of keys, and it has the values."""
        hp, n_head, n_tokens = self.hparams, self.hparams.n_head(), self.n_tokens
        nope, strides = hp.n_embd_nope, (hp.n_embd_head_k_mla, hp.n_embd_head_k_mla * n_head)
        q_nope = self.cb(view(q, (nope, n_head, n_tokens), strides), "q_nope", il)
        q_pe = self.cb(view(q, (hp.n_rot, n_head, n_tokens), strides, nope), "q_pe", il)
        q_pe = self.cb(self.turn(q_pe), "q_pe", il)
        q_nope = self.cb(permute(q_nope, 0, 2, 1, 3), "q_nope_perm", il)
        q_nope = self.cb(mul_mat(layer.attn_k_b.weight, q_nope), "q_nope_absorbed", il)
        q_nope = self.cb(permute(q_nope, 0, 2, 1, 3), "q_nope_absorbed_perm", il)
        queries = self.cb(concat(q_nope, q_pe, 0), "Qcur", il)  # [n_lora_kv + n_rot, n_head, T]
        values = self.cb(reshape(latent, hp.n_lora_kv, 1, n_tokens), "kv_cmpr_reshape", il)
        keys = self.cb(concat(values, k_pe, 0), "Kcur", il)
        return QKV(self.temper(queries, il), keys, self.cb(values, "Vcur", il))

    def _unpacked(self, layer: Layer, q: Tensor, latent: Tensor, k_pe: Tensor, il: int) -> QKV:
        """Keys and values of every head. A head's key is [nope, pe] as its query is; llama.cpp has
        it the other way round for Kimi, whose scores are then of channels that do not belong
        together."""
        hp, n_head, n_tokens = self.hparams, self.hparams.n_head(), self.n_tokens
        nope, d_v = hp.n_embd_nope, hp.n_embd_head_v_mla
        kv = self.cb(self.build_mm(layer.attn_kv_b, latent), "kv", il)
        strides = (nope + d_v, (nope + d_v) * n_head)
        k_nope = self.cb(view(kv, (nope, n_head, n_tokens), strides), "k_nope_view", il)
        values = self.cb(view(kv, (d_v, n_head, n_tokens), strides, nope), "Vcur_view", il)
        values = self.cb(cont(values), "Vcur_cont", il)
        queries = self.cb(self.turn(q, offset=nope), "Qcur", il)
        k_pe = repeat_4d(k_pe, hp.n_rot, n_head, n_tokens, 1)
        keys = self.cb(concat(k_nope, k_pe, 0), "Kcur", il)
        return QKV(self.temper(queries, il), keys, values)

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        """Dense in the first layers, then experts with shared ones. [n_embd, n] -> the same"""
        layer, hp = self.model.layers[il], self.hparams
        if il < hp.n_layer_dense_lead:
            cur = self.build_ffn(cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down)
            return self.cb(cur, "ffn_out", il)
        moe = self.build_moe_ffn(
            cur, layer, il, gating=hp.expert_gating_func, norm_w=hp.expert_weights_norm,
            w_scale=hp.expert_weights_scale,
        )  # fmt: skip
        if layer.ffn_up_shexp is None:
            return moe
        shared = self.build_ffn(
            cur, il, up=layer.ffn_up_shexp, gate=layer.ffn_gate_shexp, down=layer.ffn_down_shexp
        )
        return self.cb(add(moe, self.cb(shared, "ffn_shexp", il)), "ffn_out", il)

"""Ling 3: delta nets with a gate per dimension, some latent attention with a gate per head, experts
after the first layers with shared experts, and a NextN layer that drafts (models/bailingmoe3.cpp).

FFN sizes may differ from layer to layer; llama.cpp uses the first layer's. There may be several
NextN layers; llama.cpp drafts with one only."""

from __future__ import annotations

from ggml_py.ops import add, cont, mul, reshape, scale, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import limited_silu
from llama_py.blocks.delta_net import Delta, build_recurrent_attn
from llama_py.blocks.kda import KDA
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.blocks.state import slots
from llama_py.gguf.keys import Keys, flag, number, numbers, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.memory.specs import KVCacheSpec, StateSpec
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.axes import AxesDecoder, AxesHParams
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.experts import expert_layer
from llama_py.models.trunks.kimi import KimiHParams
from llama_py.models.trunks.latent import Latent, turn
from llama_py.models.trunks.nextn import DraftingDecoder, NextNEnds
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights

UNNAMED = (
    "conv_states_all",
    "kda_normed",
    "k_pe",
    "q_pe",
    "kv_cmpr",
    "ffn_inp",
    "ffn_norm",
    "ffn_shexp",
    "ffn_out",
)
UNNAMED_DRAFT = (
    *UNNAMED,
    "attn_norm",
    "mla_out",
    "mtp_tok_embd",
    "mtp_hnorm",
    "mtp_enorm",
    "mtp_concat",
    "mtp_attn_residual",
    "mtp_attn_post_norm",
    "mtp_post_ffn",
    "mtp_shared_head_norm",
)


class BailingMoe3HParams(AxesHParams, KimiHParams):
    """gate_lower_bound   decays are exp(gate_lower_bound * sigmoid)
    swiglu_clamp_exp, swiglu_clamp_shexp   limits of hidden values, by layer, of routed experts and
                    of the shared expert; 0: no limit
    """

    rope_type = ROPE_NORMAL
    n_embd_head_k_mla: int = uint("attention.key_length_mla", least=1)
    n_embd_head_v_mla: int = uint("attention.value_length_mla", least=1)
    kda_safe_gate: bool = flag("kda.safe_gate", True)
    gate_lower_bound: float = number("kda.gate_lower_bound")
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp", 0.0)
    swiglu_clamp_shexp: tuple[float, ...] = numbers("swiglu_clamp_shexp", 0.0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not self.kda_safe_gate:
            raise keys.error("kda.safe_gate", "must be true, the only supported gate")
        if self.gate_lower_bound >= 0:
            raise keys.error("kda.gate_lower_bound", "must be negative")

    def shared_size(self, keys: Keys) -> int:
        size = keys.uint("expert_shared_feed_forward_length", 0)
        return size or super().shared_size(keys)


class BailingMoe3KDA(KDA):
    """Decays and gates have one matrix each."""

    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: BailingMoe3HParams) -> None:
        super().__init__(w, hp.n_embd, *hp.kda_sizes)
        self.a = w.tensor("ssm_a", 1, self.n_head)
        self.g_a = w.linear("ssm_g_a", hp.n_embd, self.n_inner, scaled=False)
        self.lower_bound = hp.gate_lower_bound

    def declare_decay(self, w: Weights, n_embd: int) -> None:
        self.f_a = w.linear("ssm_f_a", n_embd, self.n_inner, scaled=False)

    def rollback_distances(self, g: GraphBuilder) -> range:
        return slots(g)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        heads = self.size, self.n_head, g.n_tokens
        q, k, v = self.project_and_convolve(g, cur, il)
        gate = mul(reshape(add(self.f_a(g, cur), self.dt), *heads), self._a())
        gate = reshape(scale(sigmoid(gate), self.lower_bound), *heads[:2], *g.per_seq)
        g.cb(gate, "kda_gate", il)  # log of the decay
        beta = sigmoid(reshape(self.beta(g, cur), 1, self.n_head, *g.per_seq))
        q, k = self.normalize_heads(g, q, k)
        state, states = self.state(g, il), g.inp_rs.mctx.get_s_l(il)
        output = build_recurrent_attn(g, states, Delta(q, k, v, gate, beta), state, il)
        output = cont(g.cb(output, "attn_output", il))
        return self.project(g, output, reshape(self.g_a(g, cur), *heads), il)

    def _a(self) -> Tensor:
        return reshape(self.a, 1, self.n_head, 1)


class BailingMoe3Attention(LatentAttention):
    """Each head's result is multiplied by a gate."""

    parts_keep = KVCacheSpec
    few_names = True

    def __init__(self, w: Weights, hp: BailingMoe3HParams, absorbed: bool) -> None:
        output = w.linear("attn_output", hp.n_embd_values(w.il), hp.n_embd, scaled=False)
        sizes = hp.latent(w.il)
        super().__init__(w, sizes, absorbed=absorbed, output=output, turn=turn, name="mla_out")
        self.gate = w.linear("attn_gate", hp.n_embd, self.n.n_head, scaled=False)

    def gate_heads(self, g: GraphBuilder, attended: Tensor, cur: Tensor, il: int) -> Tensor:
        d_v, n_head, n_tokens = self.n.d_v, self.n.n_head, g.n_tokens
        gate = sigmoid(reshape(self.gate(g, cur), 1, n_head, n_tokens))
        x = mul(reshape(attended, d_v, n_head, n_tokens), gate)
        return cont(x, d_v * n_head, n_tokens)

    def _small(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        if self.q_a is None or self.q_a_norm is None:
            return cur
        return self.q_a_norm(g, g.cb(self.q_a(g, cur), "q_a", il), "q_a_norm", il)

    def _queries(self, g: GraphBuilder, small: Tensor, il: int) -> Tensor:
        q = self.q(g, small)
        return q if self.q_a is None else g.cb(q, "q_b", il)


class BailingMoe3(AxesDecoder, DraftingDecoder, Latent):
    arch = "bailingmoe3"
    HParams = BailingMoe3HParams
    hp: BailingMoe3HParams
    names = dict.fromkeys(UNNAMED, "") | {"embd": "model.input_embed"}
    draft_names = dict.fromkeys(UNNAMED_DRAFT, "")
    nextn_ends = NextNEnds(scaled=False, head_scaled=False, norm="layer_output_norm")
    quantize_rules = QuantizeRules(more_stacks=True)

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        names = {(24, 1536, 128): "7.9B.A1.3B", (42, 2560, 512): "124B.A5.1B"}
        return names.get((hp.n_layer, hp.n_embd, hp.n_expert), "?B")

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            self.attention(w, il),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(
                w,
                hp,
                il,
                bias="needed",
                act=limited_silu(hp.swiglu_clamp_shexp[il]),
                routed_act=limited_silu(hp.swiglu_clamp_exp[il]),
            ),
        )

    def attention(self, w: Weights, il: int) -> Block:
        if self.hp.layers[il].recurrent:
            return BailingMoe3KDA(w, self.hp)
        return BailingMoe3Attention(w, self.hp, self.absorbed)

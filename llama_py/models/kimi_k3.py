"""Kimi K3: Kimi Linear's two layer types with other gates, experts in a smaller space, and residual
streams that later layers mix again (models/kimi-k3.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, mul, reshape, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import Activation
from llama_py.blocks.experts import Experts, ExpertSet, Routing, Weighing
from llama_py.blocks.kda import BoundedKDA
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.blocks.latent_experts import LatentExpertHParams, LatentExperts
from llama_py.blocks.residual_bank import Bank
from llama_py.blocks.situ import Situ, SituFeedForward
from llama_py.gguf.keys import Keys, divisor, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.memory.specs import KVCacheSpec, StateSpec
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.kimi import BoundedKimiHParams
from llama_py.models.trunks.latent import Latent
from llama_py.weights import Weights

# Not named in this graph.
UNNAMED = (
    "qr",
    "q",
    "kv_cmpr_pe",
    "kv_cmpr",
    "k_pe",
    "q_nope",
    "q_pe",
    "q_nope_perm",
    "q_nope_absorbed",
    "q_nope_absorbed_perm",
    "Qcur",
    "kv_cmpr_reshape",
    "Kcur",
    "Vcur",
    "kv",
    "k_nope_view",
    "Vcur_view",
    "Vcur_cont",
    "conv_states_all",
)


class KimiK3HParams(LatentExpertHParams, BoundedKimiHParams):
    """attn_res_block_size  period in layers for banking the residual stream; 0: never"""

    latent_stem = "ffn_routed"
    n_expert_latent: int = uint("expert_latent_length", 0)
    attn_res_block_size: int = uint("attn_res.block_size")
    situ_beta: float = divisor("activation.situ_beta")
    situ_linear_beta: float = divisor("activation.situ_linear_beta")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.set_latent(self.n_expert_latent, 0)
        if self.situ_beta <= 0:
            raise keys.error("activation.situ_beta", "must be positive")


def latent_experts(w: Weights, hp: KimiK3HParams, situ: Situ) -> LatentExperts:
    experts = Experts(
        w,
        hp,
        hp.n_ff_exp[w.il],
        experts=ExpertSet(n_embd=hp.n_embd_latent, merged=True, scaled=False),
        routing=Routing(gating=hp.gating, bias="needed", router_scaled=False),
        weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
        act=Activation("situ", situ.gate, "situ", situ),
    )
    norm = shared = None
    if hp.n_expert_latent:
        norm = w.optional_norm("ffn_routed_norm", hp.n_expert_latent)
    if w.has("ffn_up_shexp.weight"):
        shared = SituFeedForward(w, hp.n_embd, hp.n_ff_shexp, situ, "_shexp", "ffn_shexp")
    return LatentExperts(w, hp, experts, shared, norm=norm)


class KimiK3KDA(BoundedKDA):
    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: KimiK3HParams) -> None:
        super().__init__(w, hp.n_embd, *hp.kda_sizes, hp.gate_lower_bound)
        self.g = w.linear("ssm_g", hp.n_embd, self.n_inner, scaled=False)

    def out_gate(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        cur = reshape(cur, cur.ne[0], *g.per_seq)
        return self.g(g, reshape(cur, cur.ne[0], g.n_tokens))


class GatedLatentAttention(LatentAttention):
    """Latent attention with gated results of heads."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: KimiK3HParams, absorbed: bool) -> None:
        n_values = hp.n_embd_values(w.il)
        output = w.linear("attn_output", n_values, hp.n_embd, scaled=False)
        super().__init__(w, hp.latent(w.il), absorbed=absorbed, output=output, name="mla_out")
        self.gate = w.optional_linear("attn_gate", hp.n_embd, n_values, scaled=False)

    def gate_heads(self, g: GraphBuilder, attended: Tensor, cur: Tensor, il: int) -> Tensor:
        if self.gate is None:
            return attended
        return g.cb(mul(attended, sigmoid(self.gate(g, cur))), "mla_gated", il)


@dataclass(slots=True)
class KimiK3Layer:
    """Layer with optional mixing of banked residual streams.

    banks   bank the stream: later layers start from this layer's result alone
    attn_score, ffn_score   weights of the banked streams before each block
    """

    attn_norm: Norm
    attention: Block
    ffn_norm: Norm
    feed_forward: Block
    banks: bool
    attn_score: Tensor | None
    ffn_score: Tensor | None

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        bank, stream = g.shared("bank", Bank), cur
        cur = bank.mix(g, stream, self.attn_score, il)
        if self.banks:
            bank.keep(stream)
        cur = g.expand(self.attn_norm(g, cur, "attn_norm", il))
        cur = self.attention(g, cur, il)
        stream = g.cb(cur if self.banks else add(stream, cur), "prefix_sum_attn", il)
        cur = self.ffn_norm(g, bank.mix(g, stream, self.ffn_score, il), "ffn_norm", il)
        return add(stream, self.feed_forward(g, cur, il))


class KimiK3(Latent):
    arch = "kimi-k3"
    HParams = KimiK3HParams
    sizes = {93: "2.8T.A50B"}
    hp: KimiK3HParams
    names = dict.fromkeys(UNNAMED, "") | {"embd": "inp_embd"}

    def declare(self, w: Weights) -> None:
        super().declare(w)
        self.output_score: Tensor | None = None
        if self.hp.attn_res_block_size:
            self.output_score = w.tensor("output_res_score.weight", self.hp.n_embd)

    def layer(self, w: Weights, il: int) -> KimiK3Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent, situ = hp.layers[il].recurrent, Situ(hp.situ_beta, hp.situ_linear_beta)
        every = hp.attn_res_block_size
        return KimiK3Layer(
            w.norm("attn_norm", n_embd),
            KimiK3KDA(w, hp) if recurrent else GatedLatentAttention(w, hp, self.absorbed),
            w.norm("ffn_norm", n_embd),
            SituFeedForward(w, n_embd, hp.layers[il].n_ff, situ, "", "ffn_out")
            if il < hp.n_layer_dense_lead
            else latent_experts(w, hp, situ),
            every > 0 and il % every == 0,
            w.tensor("attn_res_score.weight", n_embd) if every else None,
            w.tensor("ffn_res_score.weight", n_embd) if every else None,
        )

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        cur = g.shared("bank", Bank).mix(g, cur, self.output_score)
        super().finish(g, cur, selected)

"""Muse Spark: gated attention with normed results of heads, experts in a smaller space, residual
sums with a weight per dimension; layers without a window have no RoPE."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, mul, reshape, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.experts import GATING_FUNCS, Experts, ExpertSet, Routing, Weighing
from llama_py.blocks.gated_heads import GatedHeads
from llama_py.blocks.latent_experts import LatentExpertHParams, LatentExperts
from llama_py.gguf.keys import Keys, base, divisor, flag, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.hparams.shard import Steps
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, LateSelectLayer
from llama_py.models.trunks.experts import LeadingDenseHParams
from llama_py.models.trunks.listed_windows import ListedWindows
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class MuseSparkHParams(LatentExpertHParams, ListedWindows, LeadingDenseHParams):
    """f_norm_post_eps   epsilon of norms after blocks and experts"""

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = equal_experts = True
    latent_stem = "ffn_latent"
    n_layer_dense_lead = n_expert_shared = 0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    f_norm_post_eps: float = number("post_norm_epsilon", least=0)
    rope_freq_base_swa: float = base("rope.freq_base_swa")
    final_logit_softcap: float = divisor("final_logit_softcapping")
    logit_scale: float = number("logit_scale")
    n_expert_latent: int = uint("moe_latent_size", least=1)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)
    expert_weights_scale: float = number("expert_weights_scale")
    expert_weights_norm: bool = flag("expert_weights_norm")
    expert_gating_func: int = uint("expert_gating_func", least=1, most=len(GATING_FUNCS))

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.set_latent(self.n_expert_latent, 0)


class LateNorm(Norm):
    """Norm of rows that are multiplied by the weight before."""

    def __call__(self, g: GraphBuilder, cur: Tensor, name: str = "", il: int = -1) -> Tensor:
        assert self.weight is not None
        return Norm(eps=self.eps)(g, mul(cur, self.weight), name, il)


class NormedHeads(GatedHeads):
    """The results of heads are normed before the gate."""

    parts_keep = KVCacheSpec

    def normalize_result(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        n, n_tokens = cur.ne[:2]
        d = g.hp.layers[il].n_embd_head_v
        normed = Norm()(g, reshape(cur, d, n // d, n_tokens))
        return g.cb(reshape(normed, n, n_tokens), "attn_o_norm", il)


class NormedExperts(LatentExperts):
    """The input of experts is normed, and so is each expert's result."""

    parts_keep = None

    def __init__(self, w: Weights, hp: MuseSparkHParams) -> None:
        n = hp.n_expert_latent
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[w.il],
            experts=ExpertSet(n_embd=n, scaled=False),
            routing=Routing(hp.gating, bias="needed"),
            weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
        )
        super().__init__(w, hp, experts, None)
        self.pre_norm = w.norm("ffn_pre_exp_norm", n)
        weight = w.tensor("ffn_post_exp_norm.weight", n)
        self.post_norm = LateNorm(weight, eps=hp.f_norm_post_eps)

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply the experts, yielding their results before the norm."""
        assert self.down is not None
        ids, weights = self.experts.choose(g, self.experts.route(g, cur, il), il)
        cur = g.cb(self.down(g, cur), "ffn_latent_down", il)
        cur = self.pre_norm(g, cur, "ffn_pre_exp_norm", il)
        found = yield self.experts.compute(g, cur, ids, weights, il)
        found = self.post_norm(g, found, "ffn_moe_post_exp_norm", il)
        moe = self.project_back(g, self.experts.combine(g, found, weights, il), il)
        return g.cb(moe, "ffn_latent_up", il)


@dataclass
class WeightedLayer(LateSelectLayer):
    """Layer with weighted sums.

    attn_weights, ffn_weights   weights of the layer's input and of the block's result, [n_embd]
    """

    attn_weights: tuple[Tensor, Tensor] | None = None
    ffn_weights: tuple[Tensor, Tensor] | None = None

    def attn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return _mix(x, cur, self.attn_weights)

    def ffn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return _mix(x, cur, self.ffn_weights)


def _mix(x: Tensor, cur: Tensor, weights: tuple[Tensor, Tensor] | None) -> Tensor:
    assert weights is not None
    return add(mul(x, weights[0]), mul(cur, weights[1]))


class MuseSpark(Decoder):
    arch = "muse-spark"
    HParams = MuseSparkHParams
    hp: MuseSparkHParams
    quantize_rules = QuantizeRules(least_q8=("attn_gate", "ffn_latent"))

    def declare_ends(self, w: Weights) -> None:
        w.tensor("output.weight", self.hp.n_embd, self.hp.n_vocab)  # not tied
        super().declare_ends(w)

    def embed(self, g: GraphBuilder) -> Tensor:
        return Norm()(g, super().embed(g), "embd_norm")

    def scaled_logits(self, g: GraphBuilder, cur: Tensor, output: Linear | None) -> Tensor:
        return scale(self.logits(g, cur, output), self.hp.logit_scale)

    def layer(self, w: Weights, il: int) -> WeightedLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        attn_weights, ffn_weights = (
            (
                w.tensor(f"{x}_resid_alpha.weight", n_embd),
                w.tensor(f"{x}_resid_beta.weight", n_embd),
            )
            for x in ("attn", "ffn")
        )
        post = w.tensor("post_ffw_norm.weight", n_embd)
        return WeightedLayer(
            w.norm("attn_norm", n_embd),
            NormedHeads(w, hp),
            w.norm("ffn_norm", n_embd),
            NormedExperts(w, hp),
            attn_post_norm=Norm(eps=hp.f_norm_post_eps),
            ffn_post_norm=LateNorm(post, eps=hp.f_norm_post_eps),
            post_ffn_il=(True, True),
            attn_weights=attn_weights,
            ffn_weights=ffn_weights,
        )

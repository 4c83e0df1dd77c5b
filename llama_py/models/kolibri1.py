"""Kolibri 1: norms before and after blocks, experts plus a shared one in all layers, chosen by
biased logits; layers without a window have no RoPE."""

from __future__ import annotations

from ggml_py.ops import add, argsort_top_k
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import RopeInSomeLayers, head_norms
from llama_py.blocks.experts import (
    GATING,
    GATING_FUNCS,
    UNSCALED,
    Experts,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.gguf.keys import Keys, flag, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, LateSelectLayer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.listed_windows import ModelRopeWindows
from llama_py.weights import Weights


class Kolibri1HParams(ModelRopeWindows, RoutedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = equal_experts = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", least=1)
    n_expert_shared: int = uint("expert_shared_count", least=1, most=1)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", least=1)
    expert_weights_norm: bool = flag("expert_weights_norm")
    expert_gating_func: int = uint("expert_gating_func", least=1, most=len(GATING_FUNCS))

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.gating = GATING_FUNCS[self.expert_gating_func - 1]


class BiasedLogits(Experts):
    """Experts are chosen by logits plus a bias, and weighted by the probabilities without it.
    The file's groups of experts are ignored."""

    parts_keep = None

    def _select(self, g: GraphBuilder, logits: Tensor, il: int) -> tuple[Tensor, Tensor]:
        assert self.probs_bias is not None
        probs = g.cb(GATING[self.routing.gating](logits), "ffn_moe_probs", il)
        biased = g.cb(add(logits, self.probs_bias), "ffn_moe_logits_biased", il)
        return probs, g.cb(argsort_top_k(biased, self.n_used), "ffn_moe_topk", il)


class Kolibri1(Decoder):
    arch = "kolibri1"
    HParams = Kolibri1HParams
    hp: Kolibri1HParams
    names = {"ffn_shexp": "ffn_shexp_out", "ffn_out": "", "ffn_post_norm": ""}

    def layer(self, w: Weights, il: int) -> LateSelectLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        attention = RopeInSomeLayers(
            w, hp, norms=head_norms(w, hp), turned=("Qcur_rope", "Kcur_rope"), name="attn_out"
        )
        return LateSelectLayer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            self.experts(w),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
        )

    def experts(self, w: Weights) -> SharedExperts:
        """Declare a layer's experts; the router's product is not rounded."""
        hp = self.hp
        experts = BiasedLogits(
            w,
            hp,
            hp.n_ff_exp[w.il],
            experts=UNSCALED,
            routing=Routing(hp.gating, bias="needed", router_scaled=False),
            weighing=Weighing(hp.expert_weights_norm),
        )
        experts.router.prec = experts.router.in_prec = "f32"
        return SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False)

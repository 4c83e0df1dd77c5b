"""Maion Coder: norms before and after blocks, experts in a smaller space in some layers; layers
without a window have no RoPE."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.experts import Experts, ExpertSet, Routing
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.latent_experts import LatentExpertHParams, LatentExperts
from llama_py.gguf.keys import Keys, number, uint, uints
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.listed_windows import ModelRopeWindows
from llama_py.weights import Weights


class MaionCoderHParams(ModelRopeWindows, LatentExpertHParams, RoutedHParams):
    """n_moe_layer_step   the last layer of each period has experts"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    latent_stem = "ffn_latent"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_moe_layer_step: int = uint("interleave_moe_layer_step", least=1)
    n_expert_latent: int = uint("moe_latent_size", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.set_latent(self.n_expert_latent, 0)
        if self.n_rot != self.n_embd_head_k:
            rule = f"must be the head size {self.n_embd_head_k}"
            raise keys.error("rope.dimension_count_swa", rule)

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        trunk = super()._pattern(keys)
        n = keys.count("attention.sliding_window_pattern")
        if n != self.n_layer_all:
            rule = f"must have {self.n_layer_all} items instead of {n}"
            raise keys.error("attention.sliding_window_pattern", rule)
        return trunk

    def is_moe(self, il: int) -> bool:
        """Return True if layer il has experts."""
        return (il + 1) % self.n_moe_layer_step == 0


class MaionCoder(Decoder):
    arch = "maion-coder"
    HParams = MaionCoderHParams
    hp: MaionCoderHParams
    unnamed = "Qcur_normed Kcur_normed attn_post_norm ffn_inp ffn_norm ffn_out ffn_post_norm l_out"
    names = {name: "" for name in [*unnamed.split(), "ffn_moe_logits"]}

    def declare_ends(self, w: Weights) -> None:
        w.tensor("output.weight", self.hp.n_embd, self.hp.n_vocab)  # not tied
        super().declare_ends(w)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            Attention(w, hp, norms=head_norms(w, hp), turned=("", "")),
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        """Declare the feed-forward of layer il, dense or experts."""
        hp = self.hp
        if not hp.is_moe(il):
            return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False)
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=ExpertSet(n_embd=hp.n_expert_latent, scaled=False),
            routing=Routing(router_scaled=False),
        )
        return LatentExperts(w, hp, experts, None)

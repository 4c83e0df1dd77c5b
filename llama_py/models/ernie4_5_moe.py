"""ERNIE 4.5 with experts in some layers, plus a shared one (models/ernie4-5-moe.cpp).

The keys may define dense layers in between; llama.cpp cannot run such files."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet, Routing, SharedExperts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, number, uint, uints
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.weights import Weights


class Ernie45MoeHParams(HParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)
    n_moe_layer_step: int = uint("interleave_moe_layer_step", least=1)
    n_layer_dense_lead: int = uint("leading_dense_block_count", 0, counts="first")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_expert == 0 and any(map(self.is_moe, range(self.n_layer))):
            raise keys.error("expert_count", "must be at least 1")

    def is_moe(self, il: int) -> bool:
        """Return True if layer il has experts."""
        return il >= self.n_layer_dense_lead and (il + 1) % self.n_moe_layer_step == 0


class Ernie45Moe(Decoder):
    arch = "ernie4_5-moe"
    HParams = Ernie45MoeHParams
    hp: Ernie45MoeHParams
    layer_sum = "ffn_out"
    sizes = {18: "0.3B", 28: "21B.A3B", 54: "300B.A47B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, out_bias="unread", name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        if not hp.is_moe(il):
            return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False)
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=ExpertSet(gate="optional", scaled=False),
            routing=Routing(bias="optional"),
        )
        if hp.n_ff_shexp:
            return SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False)
        self.names = {"ffn_moe_out": "ffn_out"}
        return experts

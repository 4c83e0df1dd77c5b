"""Nemotron-H: each layer is a state space model, attention without RoPE, or a feed-forward,
optionally with experts in a smaller space (models/nemotron-h.cpp).

A control vector applies to every layer's result; llama.cpp applies it to feed-forward layers
only.
"""

from __future__ import annotations

from ggml_py.ops import relu, sqr
from llama_py.blocks.activation import RELU_SQR, Activation
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet, Routing, Weighing
from llama_py.blocks.feed_forward import FeedForward, SharedFeedForward
from llama_py.blocks.latent_experts import LatentExpertHParams, LatentExperts
from llama_py.blocks.mamba import Mamba2Mixer, SSMHParams
from llama_py.gguf.keys import Keys, flag, number, uint, uints
from llama_py.hparams import EPS, RMS_EPS
from llama_py.memory.specs import MemorySpecs
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import AnyLayer, Block
from llama_py.models.trunks.nextn import SeedingDecoder
from llama_py.models.trunks.ssm import SSMLayer
from llama_py.weights import Weights

EXPERT_ACT = Activation("relu_sqr", lambda x: sqr(relu(x)))
NAMES = {"l_out": "nemotron_h_block_out", "ffn_out": "l_out"}


class NemotronHHParams(LatentExpertHParams, SSMHParams):
    """Layers with an FFN size are feed-forwards, others without key heads recurrent."""

    required_heads = equal_heads = True
    latent_stem = "ffn_latent"
    f_norm_eps: float = number(EPS, least=0)
    f_norm_rms_eps: float = number(RMS_EPS, lambda hp: hp.f_norm_eps, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)
    expert_weights_norm: bool = flag("expert_weights_norm", False)
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    n_expert_latent: int = uint("moe_latent_size", 0)

    def load(self, keys: Keys) -> None:
        self.check_groups(keys)
        super().load(keys)
        self.set_latent(self.n_expert_latent, 0)
        if self.n_expert:
            triples = zip(self.n_ff_exp, self.n_ff, self.n_expert_used, strict=True)
            self.n_ff_exp = tuple(n or n_ff // max(1, used) for n, n_ff, used in triples)
        else:
            self.n_ff_exp = ()

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0 and self.n_ff[il] == 0

    def is_ffn(self, il: int) -> bool:
        return il < self.n_layer and self.n_ff[il] > 0


class NemotronH(SeedingDecoder):
    arch = "nemotron_h"
    HParams = NemotronHHParams
    hp: NemotronHHParams
    names = NAMES
    sizes = {52: "31B.A3.5B", 56: "9B", 88: "120B.A12B"}

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        several = len(set(hp.n_expert_used[: hp.n_layer])) > 1
        return "75B.A9B" if hp.n_layer == 88 and several else super().size_name(hp)

    def layer(self, w: Weights, il: int) -> AnyLayer:
        block: Block
        if self.hp.is_recr(il):
            block = Mamba2Mixer(w, self.hp, conv_bias=True)
        elif self.hp.is_ffn(il):
            block = self.feed_forward(w, il)
        else:
            block = Attention(w, self.hp, out_bias=True, name="attn_out")
        return SSMLayer(w.norm("attn_norm", self.hp.n_embd), block)

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        if hp.n_expert:
            return self.experts(w, il)
        return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=RELU_SQR, gated=False, bias=True)

    def experts(self, w: Weights, il: int) -> LatentExperts:
        hp = self.hp
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=ExpertSet(n_embd=hp.n_embd_latent, gate="no"),
            routing=Routing(gating="sigmoid", bias="needed", router_scaled=False),
            weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
            act=EXPERT_ACT,
        )
        shared = SharedFeedForward(
            w, hp.n_embd, hp.n_ff_shexp, act=RELU_SQR, gated=False, name="ffn_shexp"
        )
        return LatentExperts(w, hp, experts, shared)

    def memory_spec(self, il: int) -> MemorySpecs:
        return () if self.hp.is_ffn(il) else super().memory_spec(il)

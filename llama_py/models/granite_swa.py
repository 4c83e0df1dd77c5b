"""Granite with sliding windows: attention sinks per head, RoPE in layers that the file names
(models/granite-swa.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet, SharedExperts
from llama_py.gguf.keys import Keys, flags, uint
from llama_py.hparams import HParams, WindowedHParams
from llama_py.hparams.layer_shape import Rope
from llama_py.models.granite import DeepstackGranite, GraniteHParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class GraniteSwaHParams(WindowedHParams, GraniteHParams):
    with_rope = True
    n_swa: int = uint("attention.sliding_window")
    rope_pattern: tuple[bool, ...] = flags("attention.rope_pattern", True)

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        return keys.flags("attention.sliding_window_pattern", self.n_layer_all)

    def rope(self, il: int) -> Rope | None:
        """Return RoPE as trained, ignoring the file's parameters for windows like llama.cpp."""
        return HParams.rope(self, il) if self.rope_pattern[il] else None


class GraniteSwa(DeepstackGranite):
    arch = "granite_swa"
    HParams = GraniteSwaHParams
    hp: GraniteSwaHParams
    sizes = {32: "3B", 40: "3B"}

    def attention(self, w: Weights, il: int) -> Block:
        attention = Attention(w, self.hp, out_bias=True, factors=self.factors, name="attn_out")
        attention.sinks = w.tensor("attn_sinks.weight", self.hp.layers[il].n_head)
        return attention

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        if hp.n_expert == 0:
            return super().feed_forward(w, il)
        experts = Experts(w, hp, n_ff, experts=ExpertSet(merged=True, scaled=False))
        if hp.n_ff_shexp == 0:
            return experts
        return SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False, act=SWIGLU)

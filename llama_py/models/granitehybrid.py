"""Granite 4: state space models in layers without key heads, else Granite
(models/granite-hybrid.cpp).

The states' inner size may be any; llama.cpp requires twice n_embd.
"""

from __future__ import annotations

from llama_py.blocks.mamba import Mamba2Mixer, SSMHParams
from llama_py.gguf.keys import Keys, divisor
from llama_py.models.granite import ScaledDecoder, SwitchedHParams
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.hybrid import MixedHParams
from llama_py.weights import Weights


class GraniteHybridHParams(MixedHParams, SwitchedHParams, SSMHParams):
    logits_divided = whole_rope = False
    logits_divisor: float = divisor("logit_scale", 0.0)

    def load(self, keys: Keys) -> None:
        self.check_groups(keys)
        super().load(keys)


class GraniteHybrid(ScaledDecoder):
    arch = "granitehybrid"
    HParams = GraniteHybridHParams
    hp: GraniteHybridHParams

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        small = "7B.A1B" if hp.n_ff[0] == 512 else "1B"
        by_width = {768: "350M", 1536: small, 2048: "3B", 2560: "3B", 4096: "32B.A9B"}
        return by_width.get(hp.n_embd, "?B")

    def attention(self, w: Weights, il: int) -> Block:
        if self.hp.layers[il].recurrent:
            return Mamba2Mixer(w, self.hp, conv_bias=True)
        return super().attention(w, il)

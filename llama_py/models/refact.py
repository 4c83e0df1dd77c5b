"""Refact: Llama without RoPE, in which what is far off counts less (models/refact.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import Keys, number
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class RefactHParams(HParams):
    required_heads = equal_heads = True
    max_alibi_bias = 8.0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        if self.n_expert:  # llama.cpp takes them, and leaves them out of its graph
            raise keys.error("expert_count", "it must be 0: such models have no experts")


class Refact(Decoder):
    """Of biases only those of queries, keys and values count, as in llama.cpp."""

    arch = "refact"
    HParams = RefactHParams
    sizes = {32: "1B"}

    def declare_ends(self, w: Weights) -> None:
        w.skip("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
        super().declare_ends(w)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        w.skip(*(f"{stem}.bias" for stem in ("attn_output", "ffn_gate", "ffn_up", "ffn_down")))
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )

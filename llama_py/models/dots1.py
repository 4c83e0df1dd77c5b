"""dots.llm1: experts after the first layers, with shared ones; queries and keys are normed head by
head (models/dots1.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.geometry import ROPE_NEOX
from llama_py.hparams import RMS_EPS
from llama_py.keys import number
from llama_py.models._decoder import Decoder, Layer
from llama_py.models._experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class Dots1HParams(LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Dots1(Decoder):
    """Here there may be fewer heads of keys than of queries; llama.cpp refuses that."""

    arch = "dots1"
    HParams = Dots1HParams
    hp: Dots1HParams
    sizes = {62: "142B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, d = self.hp, self.hp.layers[il].n_embd_head_k
        norms = w.norm("attn_q_norm", d), w.norm("attn_k_norm", d)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, q_norm=norms[0], k_norm=norms[1]),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il),
        )

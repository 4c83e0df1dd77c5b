"""Phi 3.5 with mixture of experts: norms with biases, factors of frequencies for short and for long
contexts (models/phimoe.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import ScaledAttention
from llama_py.blocks.experts import UNSCALED, Experts
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.phi3 import Phi3Layer
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.weights import Weights


class PhiMoeHParams(RoutedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class PhiMoe(LongDecoder):
    arch = "phimoe"
    HParams = PhiMoeHParams
    sizes = {32: "16x3.8B"}
    names = {"Qcur_scaled": "Qcur", "ffn_inp": ""}
    long_factors = True
    output_bias = "needed"

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = w.norm("output_norm", hp.n_embd, bias="needed")
        self.output = w.output(hp.n_embd, hp.n_vocab, bias=self.output_bias)
        self.output.before_bias = "result_output_no_bias"

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Phi3Layer(
            w.norm("attn_norm", hp.n_embd, bias="needed"),
            ScaledAttention(w, hp, out_bias="needed", factors=self.factors),
            w.norm("ffn_norm", hp.n_embd, bias="needed"),
            Experts(w, hp, hp.layers[il].n_ff, experts=UNSCALED),
        )

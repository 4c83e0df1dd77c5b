"""Jamba: state space models, some attention layers without RoPE, and experts in some layers
(models/jamba.cpp).

llama.cpp takes the heads of all attention from the first layer; here each layer has its own.
"""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import UNNORMED, UNSCALED, Experts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.mamba import MambaMixer, SSMHParams
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.hybrid import MixedHParams, OperatorLayer
from llama_py.weights import Weights


class JambaHParams(MixedHParams, SSMHParams):
    required_heads = equal_heads = True
    ssm_n_group: int = 0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Jamba(Decoder):
    arch = "jamba"
    HParams = JambaHParams
    hp: JambaHParams

    def layer(self, w: Weights, il: int) -> OperatorLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent = hp.layers[il].recurrent
        return OperatorLayer(
            w.norm("attn_norm", n_embd),
            MambaMixer(w, hp, normed=True) if recurrent else Attention(w, hp),
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il),
            "ffn_inp",
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp, n_ff = self.hp, self.hp.layers[il].n_ff
        if w.has("ffn_gate_inp.weight"):
            return Experts(w, hp, n_ff, experts=UNSCALED, weighing=UNNORMED)
        return FeedForward(w, hp.n_embd, n_ff, scaled=False)

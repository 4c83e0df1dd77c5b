"""Decoders with a dense feed-forward and latent attention that caches unpacked keys and values
(models/minicpm3.cpp, plm.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.blocks.rope import RopeFactors, rope
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.cparams import CParams
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.models.trunks.latent import LatentDecoder
from llama_py.weights import Weights

NAMES = {
    "qr": "q",
    "Qcur": "q_states",
    "kv_cmpr_pe": "kv_pe_compresseed",
    "kv_cmpr": "kv_compressed",
    "k_nope_view": "k_nope",
    "Kcur": "k_states",
    "Vcur_view": "v_states",
    "Vcur_cont": "v_states",
}


class FactorTurn:
    """RoPE with factors of frequencies; each device that shares a layer has separate factors.

    Splitting finds attributes only, not the contents of bound methods or closures.
    """

    def __init__(self, factors: RopeFactors | None) -> None:
        self.factors = factors

    def __call__(self, g: GraphBuilder, x: Tensor, layer: int, offset: int) -> Tensor:
        # a parameter named `il` would mark it as a separate block
        factors = None if self.factors is None else self.factors(g.cparams)
        return rope(g, x, layer, factors, offset=offset)


class LatentDense(LatentDecoder):
    """residual_scale   see `Layer`
    factors   factors of RoPE's frequencies
    """

    names = NAMES
    residual_scale: float = 0.0
    factors: RopeFactors | None = None

    def declare(self, w: Weights) -> None:
        self.absorbed = False
        Decoder.declare(self, w)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return None if self.factors is None else self.factors(cparams)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n = self.hp, self.hp.latent(il)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            LatentAttention(
                w,
                n,
                absorbed=False,
                turn=FactorTurn(self.factors),
                output=w.linear("attn_output", hp.n_embd_values(il), hp.n_embd),
            ),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
            residual_scale=self.residual_scale,
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False)

"""Llama-Nemotron: layers differ in heads and sizes; some have a matrix instead of attention, no
attention, or no feed-forward (models/deci.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block, Layer, LongDecoder
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class DeciHParams(HParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Deci(LongDecoder):
    """The attention of a layer without feed-forward counts; llama.cpp drops it. The first layer may
    be without attention, and the last without feed-forward; llama.cpp does not expect that.
    """

    arch = "deci"
    HParams = DeciHParams
    quantize_rules = QuantizeRules(is_70b=lambda n_layer, *_: n_layer == 80)
    sizes = {32: "7B", 80: "70B", 162: "405B"}
    hp: DeciHParams
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        n_embd, shape = self.hp.n_embd, self.hp.layers[il]
        return Layer(
            w.norm("attn_norm", n_embd) if shape.n_head else None,
            self.attention(w, il) if shape.n_head else None,
            w.norm("ffn_norm", n_embd) if shape.n_ff else None,
            FeedForward(w, n_embd, shape.n_ff, bias=True, scaled=False) if shape.n_ff else None,
        )

    def attention(self, w: Weights, il: int) -> Block:
        if self.hp.layers[il].n_head_kv:
            return Attention(w, self.hp, out_bias=True, factors=self.factors)
        return OneMatrix(w, self.hp.n_embd)


class OneMatrix:
    """Matrix that replaces attention ("linear attention" in the file); tokens are not mixed."""

    def __init__(self, w: Weights, n_embd: int) -> None:
        self.output = w.linear("attn_output", n_embd, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Multiply by the matrix: [n_embd, n_tokens] -> same shape."""
        return g.cb(self.output(g, cur), "wo", il)

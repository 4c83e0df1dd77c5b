"""Spark 2.5: a gate per attention head; most layers use sliding-window attention
(models/spark2-5.cpp)."""

from __future__ import annotations

from ggml_py.ops import sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import times_by_head
from llama_py.gguf.keys import base, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class Spark25HParams(ScaledWindows):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", least=1)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)


class GatedByHead(Attention):
    """Attention with heads multiplied by a sigmoid of the input."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams) -> None:
        super().__init__(w, hp, turned=("Qcur_rope", "Kcur_rope"), name="attn_out_proj")
        self.gate = w.linear("attn_gate", hp.n_embd, hp.layers[w.il].n_head, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend and gate heads: [n_embd, n_tokens] -> same shape."""
        found = g.cb(self.attend(g, self.project(g, cur, il), il), "attn_out", il)
        gate = g.cb(sigmoid(self.gate(g, cur)), "attn_gate", il)
        gated = g.cb(times_by_head(found, gate), "attn_gated", il)
        return g.cb(self.output(g, gated), self.name, il)


class Spark25(Decoder):
    arch = "spark2_5"
    HParams = Spark25HParams
    hp: Spark25HParams
    sizes = {28: "1.7B"}

    def layer(self, w: Weights, il: int) -> Layer:
        n_embd = self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            GatedByHead(w, self.hp),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, self.hp.layers[il].n_ff, act=GELU, scaled=False),
        )

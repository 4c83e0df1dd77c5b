"""Refact: Llama with ALiBi instead of RoPE (models/refact.cpp)."""

from __future__ import annotations

import logging

from ggml_py.ops import silu
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.weights import Weights

ENDS = ("weight", "scale", "input_scale")

log = logging.getLogger("llama_py")


class RefactHParams(HParams):
    required_heads = equal_heads = True
    max_alibi_bias = 8.0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Refact(Decoder):
    """Refact decoder. No published model has experts; like in llama.cpp, a file's expert matrices
    are ignored, with a warning."""

    arch = "refact"
    HParams = RefactHParams
    sizes = {32: "1B"}

    def declare_ends(self, w: Weights) -> None:
        w.skip("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
        super().declare_ends(w)
        if self.hp.n_expert:
            log.warning(
                "%s: experts are ignored, because llama.cpp omits them from the graph of %s models",
                w.source,
                self.arch,
            )

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, out_bias="unread"),
            w.norm("ffn_norm", hp.n_embd),
            self._feed_forward(w),
        )

    def _feed_forward(self, w: Weights) -> Block:
        if not self.hp.n_expert:
            n_ff = self.hp.layers[w.il].n_ff
            return FeedForward(w, self.hp.n_embd, n_ff, bias="unread", scaled=False)
        w.skip(*(f"ffn_{stem}.bias" for stem in ("gate", "up", "down")))
        parts = [f"{part}_{kind}" for part in ("gate", "up", "down") for kind in ("exps", "shexp")]
        w.skip(*(f"ffn_{stem}.{end}" for stem in ("gate_inp", *parts) for end in ENDS))
        return BareActivation()


class BareActivation:
    """Activation that remains of a feed-forward without its matrices."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply SiLU: [n_embd, n] -> same shape."""
        return g.cb(g.cb(silu(g.cb(cur, "ffn_up", il)), "ffn_silu", il), "ffn_out", il)

"""Command R: attention and feed-forward in parallel on the same norm without a bias; in the largest
model queries and keys are normed (models/command-r.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SILU
from llama_py.blocks.attention import Attention
from llama_py.gguf.keys import number
from llama_py.graph.linear import Linear
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import ParallelLayer
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class CommandRHParams(LayerNormHParams):
    rope_type = ROPE_NORMAL
    logit_scale: float = number("logit_scale", 0.0)


class CommandR(LayerNormDecoder):
    """The head is always the embeddings."""

    arch = "command-r"
    HParams = CommandRHParams
    sizes = {40: "35B"}
    names = {"Qcur_normed": "Qcur", "Kcur_normed": "Kcur"}
    norm_bias = False
    act, gated = SILU, True

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = self.norm(w, "output_norm")
        self.output = Linear(w.tied_tensor("token_embd.weight"))

    def layer(self, w: Weights, il: int) -> ParallelLayer:
        return ParallelLayer(self.norm(w, "attn_norm"), self.attention(w), self.feed_forward(w))

    def attention(self, w: Weights) -> Attention:
        hp, shape = self.hp, self.hp.layers[w.il]
        if hp.n_layer < 64:
            return super().attention(w)
        q_norm, k_norm = (
            w.norm(f"attn_{x}_norm", shape.n_embd_head_k, n, kind="layer")
            for x, n in (("q", shape.n_head), ("k", shape.n_head_kv))
        )
        return Attention(w, hp, norms=(q_norm, k_norm))

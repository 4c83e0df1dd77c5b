"""Qwen3.5 and 3.6, dense: delta nets, every fourth layer full attention; a matrix after the last
norm may give the embeddings, like in llama.cpp b11739 (models/qwen35.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.hparams.layer_shape import ROPE_IMROPE
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.hybrid import Hybrid, HybridHParams
from llama_py.weights import Weights


class Qwen35HParams(HybridHParams):
    rope_type = ROPE_IMROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)


class Qwen35(Hybrid):
    arch = "qwen35"
    folds = "qwen35"
    HParams = Qwen35HParams
    sizes = {(24, 1024): "0.8B", 24: "2B", (32, 2560): "4B", 32: "9B", 64: "27B"}
    layer_sum = "post_ffn"

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        hp = self.hp
        self.embd_proj = w.optional_linear(
            "cls.output", hp.n_embd, hp.n_embd_out, bias=True, scaled=False
        )

    def head(self, g: GraphBuilder, cur: Tensor, output: Linear | None = None) -> None:
        if self.embd_proj is not None and g.params.gtype == "decoder":
            g.res.t_embd = g.expand(g.cb(self.embd_proj(g, cur), "result_embd_proj"))
        super().head(g, cur, output)

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff)

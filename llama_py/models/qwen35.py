"""Qwen3.5 and 3.6, dense: delta nets, every fourth layer full attention (models/qwen35.cpp)."""

from __future__ import annotations

from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import uints
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

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff)

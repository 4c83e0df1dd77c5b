"""Qwen3-VL's decoder: positions of several axes; image embeddings have an additional part for each
of the first layers (models/qwen3vl.cpp)."""

from __future__ import annotations

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_IMROPE
from llama_py.models.qwen3 import Qwen3, Qwen3HParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class Qwen3VLHParams(Qwen3HParams):
    """n_deepstack_layers  number of parts of an image's embeddings after the first; one part is
    added to the result of each of the first layers"""

    rope_type = ROPE_IMROPE
    whole_rope = True
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)
    n_deepstack_layers: int = uint("n_deepstack_layers", 0, counts="first")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_deepstack_layers > self.n_layer:
            raise keys.error(
                "n_deepstack_layers", f"must be at most {self.n_layer}, the number of layers"
            )

    @property
    def n_embd_inp(self) -> int:
        return self.n_embd * (1 + self.n_deepstack_layers)


class Qwen3VL(Qwen3):
    """llama.cpp cannot run a model that adds parts of images in its last layer."""

    arch = "qwen3vl"
    HParams = Qwen3VLHParams
    hp: Qwen3VLHParams
    sizes = {28: "1.7B", (36, 2560): "4B", 36: "8B", 64: "32B"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False)

    def after_layer(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        if il >= self.hp.n_deepstack_layers:
            return cur
        return g.cb(add(cur, g.deepstack(il + 1)), "deepstack_out", il)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return self.hp.n_deepstack_layers < self.hp.n_layer

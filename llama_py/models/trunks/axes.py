"""Decoders with several position axes, for images, if the file has RoPE sections
(llama-hparams.cpp:use_mrope)."""

from __future__ import annotations

from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.gguf.keys import Keys, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import ROPE_MROPE
from llama_py.models.trunks.decoder import Decoder


class AxesHParams(HParams):
    """RoPE is of the class's type if the file has no sections for two axes."""

    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", 0, count=lambda _: 4)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if all(self.rope_sections[:2]):
            self.rope_type = ROPE_MROPE


class AxesDecoder(Decoder):
    def embed(self, g: GraphBuilder) -> Tensor:
        """Return embeddings; ContextError if positions of embeddings are unknown."""
        if g.ubatch.has_embd and g.hp.rope_type != ROPE_MROPE:
            raise ContextError(
                "rope.dimension_sections is missing, so positions of image embeddings are "
                "unknown; convert the model again, or decode tokens"
            )
        return super().embed(g)

"""GLM-4, text and vision: blocks are normed before and after; gate and up are one matrix
(models/glm4.cpp)."""

from __future__ import annotations

from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_MROPE, ROPE_NORMAL
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.keys import Keys, number, uints
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class Glm4HParams(HParams):
    """A file with sections of RoPE has several position axes, for images."""

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", 0, count=lambda _: 4)

    def load(self, keys: Keys) -> None:
        if all(self.rope_sections[:2]):
            self.rope_type = ROPE_MROPE


class Glm4(Decoder):
    """NextN layers are left alone, as llama.cpp does."""

    arch = "glm4"
    HParams = Glm4HParams
    hp: Glm4HParams
    names = {"attn_post_norm": "post_attn_norm", "ffn_post_norm": "post_mlp_norm"}

    def embed(self, g: GraphBuilder) -> Tensor:
        if g.ubatch.token is None and self.hp.rope_type != ROPE_MROPE:
            raise ContextError(
                "this file has no rope.dimension_sections, so that the places of embeddings in an "
                "image cannot be told; convert the model again, or decode tokens"
            )
        return super().embed(g)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        attention = Attention(w, hp)
        feed_forward = FeedForward(w, n_embd, hp.layers[il].n_ff, act=SWIGLU, scaled=False)
        attention.output.prec = feed_forward.down.prec = "f32"
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            feed_forward,
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
        )

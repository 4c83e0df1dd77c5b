"""CogVLM's decoder: text and image tokens have separate matrices, but the same keys and values
(models/cogvlm.cpp).

All rows pass through the last layer and the head, like in llama.cpp. llama.cpp returns the first
rows in place of the requested rows, which are returned here.
"""

from __future__ import annotations

from ggml_py.ops import rope_ext
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.models.trunks.plain import WholeHParams
from llama_py.weights import Weights


class CogVLMHParams(WholeHParams):
    """RoPE has a fixed type, regardless of the file."""

    mixes_embd = False
    rope_type = ROPE_NEOX

    def load(self, keys: Keys) -> None:
        if self.n_head != self.n_head_kv:
            raise keys.error("attention.head_count_kv", "must be attention.head_count")
        if self.n_embd != self.n_embd_head_k * self.n_head[0]:
            raise keys.error(
                "attention.key_length", f"times head_count must be embedding_length = {self.n_embd}"
            )

    def rope(self, il: int) -> Rope | None:
        return Rope(self.rope_type, self.n_rot, fixed=True, yarn=False)


class CogVLM(Decoder):
    arch = "cogvlm"
    HParams = CogVLMHParams
    hp: CogVLMHParams
    sizes = {32: "13B"}
    names = {"attn_norm": "", "wqkv": "", "Qcur": "", "Kcur": "", "Vcur": ""}
    layer_sum = "ffn_out"
    reads_images = True

    def declare_ends(self, w: Weights) -> None:
        w.skip("rope_freqs.weight")
        super().declare_ends(w)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, image, n_ff = self.hp, w.scope("vis_", il), self.hp.layers[il].n_ff
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            TextOrImage(self._attention(w, PlainRope), self._attention(image, ImageAttention)),
            w.norm("ffn_norm", hp.n_embd),
            TextOrImage(
                FeedForward(w, hp.n_embd, n_ff, scaled=False, name=""),
                ImageFeedForward(image, hp.n_embd, n_ff, scaled=False, name=""),
            ),
        )

    def _attention(self, w: Weights, kind: type[PlainRope]) -> Block:
        hp = self.hp
        qkv = Projections(w, hp.n_embd, hp.layers[w.il], bias=False, scaled=False, joined=True)
        return kind(w, hp, qkv=qkv, name="attn_out")

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        super().finish(g, cur, selected=True)  # all rows are computed


class ImageFeedForward(FeedForward):
    parts_keep = None
    stem = "{}"


class TextOrImage:
    """One block for tokens, another for input embeddings."""

    def __init__(self, text: Block, image: Block) -> None:
        self.text, self.image = text, image

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the matrices for image or text tokens: [n_embd, n_tokens] -> same shape."""
        block = self.image if g.ubatch.token is None else self.text
        return block(g, cur, il)


class PlainRope(Attention):
    """Applies ggml_rope with the model's parameters; the context's RoPE options are ignored."""

    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        how = g.hp.layers[il].rope
        assert how is not None
        q, k = (
            rope_ext(
                x, g.inp_pos, None, how.n_rot, how.type, 0, how.freq_base, 1.0, 0.0, 1.0, 0.0, 0.0
            )
            for x in qkv[:2]
        )
        return q, k


class ImageAttention(PlainRope):
    parts_keep = KVCacheSpec
    out_scaled = False

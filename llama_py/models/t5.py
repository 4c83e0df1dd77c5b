"""T5 and Flan-T5: an encoder processes a text, a decoder generates another (models/t5.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Projections, attend
from llama_py.blocks.softmax import Scores
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.memory.specs import KVCacheSpec, MemorySpecs
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import EarlyScaleDecoder, Layer
from llama_py.models.trunks.t5 import (
    BucketHParams,
    CrossAttention,
    Distances,
    Tables,
    feed_forward,
    reader,
)
from llama_py.weights import Weights


class T5HParams(BucketHParams):
    dec_start_token_id: int = uint("decoder_start_token_id", 0)
    dec_n_layer: int = uint("decoder_block_count", lambda hp: hp.n_layer, least=1, counts="all")

    def load(self, keys: Keys) -> None:
        if self.dec_n_layer > self.n_layer:
            raise keys.error("decoder_block_count", f"must be at most block_count = {self.n_layer}")


class SelfAttention:
    """Self-attention of the decoder over its cache."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams, distances: Distances) -> None:
        shape, self.distances = hp.layers[w.il], distances
        self.qkv = Projections(w, hp.n_embd, shape, bias=False, scaled=False)
        self.output = w.linear("attn_o", shape.n_embd_v_out, hp.n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        qkv = self.qkv(g, cur, il)
        cur = attend(g, qkv, il, Scores(1.0, bias=self.distances(g)))
        return g.cb(self.output(g, cur), "kqv_out", il)


@dataclass(slots=True)
class DecoderLayer:
    """Decoder layer: self-attention, then a layer that attends to the encoder's result."""

    attn_norm: Norm
    attention: SelfAttention
    rest: Layer

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual, cur = cur, self.attn_norm(g, cur, "attn_norm", il)
        cur = g.cb(add(self.attention(g, cur, il), residual), "cross_inp", il)
        return self.rest(g, cur, il, last)


class ReadingLayer(Layer):
    def attn_normed(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        assert self.attn_norm is not None
        return self.attn_norm(g, x, "attn_norm_cross", il)


class T5(EarlyScaleDecoder):
    arch = "t5"
    HParams = T5HParams
    sizes = {6: "60M", 8: "80M"}
    hp: T5HParams
    gtypes = ("decoder", "encoder")
    layer_sum = "ffn_out"

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        n_ff = hp.n_ff[0]
        if hp.n_layer == 12:
            return {3072: "220M", 2048: "250M"}.get(n_ff, "?B")
        if hp.n_layer == 24:
            sizes = {4096: "770M", 2816: "780M", 16384: "3B", 5120: "3B"}
            return sizes.get(n_ff) or {65536: "11B", 10240: "11B"}.get(n_ff, "?B")
        return super().size_name(hp)

    def declare(self, w: Weights) -> None:
        hp = self.hp
        self.start_token = hp.dec_start_token_id
        self.token_embd = w.tensor("token_embd.weight", hp.n_embd, hp.n_vocab)
        self.encoder_norm = w.norm("enc.output_norm", hp.n_embd)
        self.output_norm = w.norm("dec.output_norm", hp.n_embd)
        self.output = w.output(hp.n_embd, hp.n_vocab)
        if not w.has("output.weight") and hp.differs(
            "logits of tied embeddings are not divided by sqrt(embedding_length)"
        ):
            hp.logit_scale = hp.n_embd**-0.5
        read, self.written = Tables(hp), Tables(hp, decoding=True)
        parts = (w.layer(il, "enc.") for il in range(hp.n_layer))
        self.encoder = [reader(part, hp, read(part)) for part in parts]
        self.layers = [self.layer(w.layer(il, "dec."), il) for il in range(hp.dec_n_layer)]

    def memory_spec(self, il: int) -> MemorySpecs:
        return super().memory_spec(il) if il < self.hp.dec_n_layer else ()

    def layer(self, w: Weights, il: int) -> DecoderLayer:
        hp = self.hp
        w.skip("cross_attn_rel_b.weight")
        return DecoderLayer(
            w.norm("attn_norm", hp.n_embd),
            SelfAttention(w, hp, self.written(w)),
            ReadingLayer(
                w.norm("cross_attn_norm", hp.n_embd),
                CrossAttention(w, hp, "cross_attn"),
                w.norm("ffn_norm", hp.n_embd),
                feed_forward(w, hp),
            ),
        )

    def build_encoder(self, g: GraphBuilder) -> None:
        cur, end = self.embed(g), len(self.encoder) - 1
        for il, layer in enumerate(self.encoder):
            cur = g.layer_out(layer(g, cur, il, il == end), il, self.layer_sum)
        cur = self.encoder_norm(g, g.cb(cur, "result_embd"), "result_norm")
        g.res.t_embd = g.expand(cur)

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        super().finish(g, g.cb(cur, "result_embd"), selected)

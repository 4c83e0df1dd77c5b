"""Talkie: norms without weights, also for embeddings; a fraction of the embeddings is added to each
layer's result (models/talkie.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, mul
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import LateNormedAttention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import AnyLayer, Decoder, Layer
from llama_py.models.trunks.plain import WholeHParams
from llama_py.weights import Weights

EMBD = "embd_skip"


class TalkieHParams(WholeHParams):
    rope_type = ROPE_NEOX
    logit_scale: float = number("logit_scale")


class Talkie(Decoder):
    """Queries have a factor for each head in place of a norm's weights."""

    arch = "talkie"
    HParams = TalkieHParams
    sizes = {40: "13B"}
    names = {"Qcur_normed": "Qcur_norm", "Kcur_normed": "Kcur_norm"}

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = Norm()
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab)

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.shared(EMBD, lambda: Norm()(g, super(Talkie, self).embed(g), "inp_norm"))

    def layer(self, w: Weights, il: int) -> AnyLayer:
        hp, shape = self.hp, self.hp.layers[il]
        attention = LateNormedAttention(
            w,
            hp,
            norms=(Norm(w.tensor("attn_q_norm.weight", 1, shape.n_head)), Norm()),
            turned=("", ""),
            name="attn_out",
        )
        feed_forward = FeedForward(w, hp.n_embd, shape.n_ff, scaled="down")
        return WithEmbeddings(w, Layer(Norm(), attention, Norm(), feed_forward))


class WithEmbeddings:
    """A layer that adds the scaled embeddings to its result."""

    def __init__(self, w: Weights, layer: AnyLayer) -> None:
        self.layer, self.factor = layer, w.tensor("layer_output_scale.weight", 1)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer and add a fraction of the token embeddings."""
        cur, embd = self.layer(g, cur, il, last), g.get_shared(EMBD)
        if last:
            embd = g.outputs(embd)[0]
        return add(cur, g.cb(mul(embd, self.factor), "embd_skip", il))

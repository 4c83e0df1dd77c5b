"""OpenELM: layers differ in heads and FFN sizes (models/openelm.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, reshape, view
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, Projections, head_norms
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.plain import PlainDecoder, PlainHParams
from llama_py.weights import Weights


class OpenElmHParams(PlainHParams):
    rope_type = ROPE_NEOX


class OpenElmLayer(Layer):
    def attn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return add(x, cur)


class OpenElm(PlainDecoder):
    arch = "openelm"
    HParams = OpenElmHParams
    sizes = {16: "270M", 20: "450M", 28: "1B", 36: "3B"}
    names = {"Qcur_normed": "Qcur", "Kcur_normed": "Kcur"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, shape = self.hp, self.hp.layers[il]
        qkv = HeadsFirst(w, hp.n_embd, shape, bias=False, scaled=False, joined=True)
        return OpenElmLayer(
            w.norm("attn_norm", hp.n_embd),
            # After RoPE, llama.cpp's queries have the name of the values.
            Attention(w, hp, qkv=qkv, norms=head_norms(w, hp), turned=("Vcur", "Kcur")),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )


class HeadsFirst(Projections):
    """Projections of one matrix, split into heads before queries, keys and values are separated."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        d, first, parts = self.heads[0][0], 0, []
        every = reshape(self._joint(g, cur, il), d, sum(n for _, n in self.heads), g.n_tokens)
        for (_, n_head), name in zip(self.heads, ("Qcur", "Kcur", "Vcur"), strict=True):
            parts.append(g.cb(view(every, (d, n_head, g.n_tokens), offset=first * d), name, il))
            first += n_head
        return QKV(*parts)

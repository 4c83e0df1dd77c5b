"""Chameleon, text only: queries and keys have a norm per head; the large model norms the results of
blocks instead of their inputs (models/chameleon.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, clamp, set_
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, flag
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import AnyLayer, Block, Decoder, Layer
from llama_py.models.trunks.plain import WholeHParams
from llama_py.weights import Weights

_LOWEST = -3.4028234663852886e38  # FLT_MAX
_IMAGES = range(4, 8196)  # tokens of images


class ChameleonHParams(WholeHParams):
    """swin_norm  results of blocks are normed"""

    rope_type = ROPE_NORMAL
    f_norm_eps = 1e-5
    swin_norm: bool = flag("swin_norm", False)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_vocab < _IMAGES.stop:
            raise keys.error("vocab_size", f"must be at least {_IMAGES.stop}")


@dataclass(slots=True)
class SwinLayer:
    """x + norm(attention(x)), and to this norm(feed_forward(norm(attention(x)))): as in llama.cpp
    the feed-forward does not get the sum."""

    attn_norm: Norm
    attention: Block
    ffn_norm: Norm
    feed_forward: Block

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual, cur = cur, self.attention(g, cur, il)
        if last:  # only output rows remain
            cur, residual = g.outputs(cur, residual)
        cur = self.attn_norm(g, cur, il=il)
        ffn_inp = g.cb(add(cur, residual), "ffn_inp", il)
        cur = self.ffn_norm(g, self.feed_forward(g, cur, il), "ffn_norm", il)
        return add(cur, ffn_inp)


class Chameleon(Decoder):
    """Chameleon without image output: image tokens are never chosen, in no output of a batch.
    llama.cpp excludes them from a batch's first output only."""

    arch = "chameleon"
    HParams = ChameleonHParams
    hp: ChameleonHParams
    sizes = {32: "7B", 48: "34B"}
    names = {"Qcur_normed": "Qcur", "Kcur_normed": "Kcur"}
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> AnyLayer:
        hp, shape = self.hp, self.hp.layers[il]
        attn_norm, ffn_norm = w.norm("attn_norm", hp.n_embd), w.norm("ffn_norm", hp.n_embd)
        q_norm, k_norm = (
            w.norm(f"attn_{x}_norm", shape.n_embd_head_k, n, kind="layer", bias=True)
            for x, n in (("q", shape.n_head), ("k", shape.n_head_kv))
        )
        attention = Attention(w, hp, norms=(q_norm, k_norm))
        feed_forward = FeedForward(w, hp.n_embd, shape.n_ff, scaled=False)
        kind = SwinLayer if hp.swin_norm else Layer
        return kind(attn_norm, attention, ffn_norm, feed_forward)

    def head(self, g: GraphBuilder, cur: Tensor, output: Linear | None = None) -> None:
        logits = (g.params.head or output or self.output)(g, cur)
        g.cb(logits, "result_output_with_img_logits")
        lowest = clamp(Tensor(F32, (len(_IMAGES), g.n_outputs)), _LOWEST, _LOWEST)
        g.cb(lowest, "img_logits")
        logits = set_(logits, lowest, *logits.nb[1:], _IMAGES.start * logits.nb[0])
        g.res.t_logits = g.expand(g.cb(logits, "result_output"))

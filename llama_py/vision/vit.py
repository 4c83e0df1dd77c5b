"""Vision transformer of most encoders (clip.cpp:clip_graph::build_vit)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops import add, mul, reshape, rms_norm
from ggml_py.tensor import Tensor
from llama_py.graph.linear import Norm, NormKind
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import VisionHParams
from llama_py.vision.layers import VisionFeedForward, VisionProjections, apply_norm, attend
from llama_py.weights import Weights

Turn = Callable[[Tensor], Tensor]  # position encoding of queries and keys


def feed_forward(w: Weights, hp: VisionHParams, swaps: bool) -> VisionFeedForward:
    """Declare a layer's feed-forward; its hidden size is the file's.

    swaps  old files swap the names of up and down: then `ffn_up` returns n_embd dimensions
    """
    names, n_embd = ["ffn_up", "ffn_down"], hp.n_embd
    down = w.info("ffn_down.weight")
    if swaps and down is not None and w.has("ffn_up.weight") and down.ne[0] == n_embd:
        names.reverse()
    info = w.info(f"{names[0]}.weight")
    n_ff = hp.n_ff if info is None else info.ne[1]
    return VisionFeedForward(
        w.linear(names[0], n_embd, n_ff, bias=True, scaled=False),
        w.linear(names[1], n_ff, n_embd, bias=True, scaled=False),
        w.optional_linear("ffn_gate", n_embd, n_ff, bias=True, scaled=False),
        hp.activation,
    )


class ViTLayer:
    """Layer of attention and feed-forward, each after a norm, with the file's optional norms after
    them and scales of their results."""

    def __init__(self, w: Weights, hp: VisionHParams, kind: NormKind, swaps: bool) -> None:
        n = hp.n_embd
        self.ln1 = w.optional_norm("ln1", n, kind=kind, bias=True) or Norm(kind=kind)
        self.qkv = VisionProjections(w, n, hp.n_head, kind)
        self.out = w.linear("attn_out", n, n, bias=True, scaled=False)
        self.attn_post = w.optional_norm("attn_post_norm", n, kind=kind)
        self.ln2 = w.optional_norm("ln2", n, kind=kind, bias=True) or Norm(kind=kind)
        self.ffn = feed_forward(w, hp, swaps)
        self.ffn_post = w.optional_norm("ffn_post_norm", n, kind=kind)
        self.scales = [
            w.optional_tensor(f"{x}.weight", n, other=(1,)) for x in ("ls1", "ls2", "out_scale")
        ]


class ViT:
    """A transformer of patches.

    turn_values  scale rows of values to mean square one
    """

    def __init__(
        self,
        w: Weights,
        hp: VisionHParams,
        kind: NormKind,
        *,
        swaps: bool = False,
        turn_values: bool = False,
    ) -> None:
        n = hp.n_embd
        self.turn_values = turn_values
        self.pre = w.optional_norm("v.pre_ln", n, kind=kind, bias=True)
        layers = (w.scope(f"v.blk.{il}.", il) for il in range(hp.n_layer))
        self.layers = [ViTLayer(part, hp, kind, swaps) for part in layers]
        self.post = w.optional_norm("v.post_ln", n, kind=kind, bias=True)

    def __call__(
        self, g: ImageGraph, inp: Tensor, learned: Tensor | None = None, turn: Turn | None = None
    ) -> Tensor:
        """Apply the transformer: [n_embd, n_pos] -> [n_embd, n_pos, 1].

        learned  position embeddings to add
        """
        n_embd, n_pos = g.hp.n_embd, inp.ne[1]
        if learned is not None:
            inp = g.cb(add(inp, learned), "pos_embed")
        cur = reshape(inp, n_embd, n_pos)
        if self.pre is not None:
            cur = g.cb(apply_norm(g, cur, self.pre), "pre_ln")
        for il, layer in enumerate(self.layers):
            cur = self._layer(g, layer, cur, turn, il)
        if self.post is not None:
            cur = apply_norm(g, cur, self.post)
        return reshape(cur, n_embd, n_pos, 1)

    def _layer(
        self, g: ImageGraph, layer: ViTLayer, inp: Tensor, turn: Turn | None, il: int
    ) -> Tensor:
        cur = g.cb(apply_norm(g, inp, layer.ln1, il), "layer_inp_normed", il)
        qkv = layer.qkv(g, cur, il)
        if turn is not None:
            q, k = g.cb(turn(qkv.q), "Qcur_pos", il), turn(qkv.k)
            qkv = qkv._replace(q=q, k=g.cb(k, "Kcur_pos", il))
        if self.turn_values:
            qkv = qkv._replace(v=g.cb(rms_norm(qkv.v, g.hp.eps), "Vcur_normed", il))
        cur = g.cb(attend(g, qkv, layer.out, il), "attn_out", il)
        if layer.scales[0] is not None:
            cur = g.cb(mul(cur, layer.scales[0]), "attn_out_scaled", il)
        if layer.attn_post is not None:
            cur = g.cb(apply_norm(g, cur, layer.attn_post, il), "attn_post_normed", il)
        inp = g.cb(add(cur, inp), "ffn_inp", il)
        cur = g.cb(apply_norm(g, inp, layer.ln2, il), "ffn_inp_normed", il)
        cur = g.cb(layer.ffn(g, cur, il), "ffn_out", il)
        if layer.ffn_post is not None:
            cur = g.cb(apply_norm(g, cur, layer.ffn_post, il), "ffn_post_normed", il)
        if layer.scales[1] is not None:
            cur = g.cb(mul(cur, layer.scales[1]), "ffn_out_scaled", il)
        cur = g.cb(add(inp, cur), "layer_out", il)
        if layer.scales[2] is not None:
            cur = g.cb(mul(cur, layer.scales[2]), "layer_out_scaled", il)
        return cur

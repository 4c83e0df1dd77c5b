"""Common parts of Qwen's encoders: pairs of patches in two frames, positions on two axes
(models/qwen2vl.cpp, qwen3vl.cpp)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ggml_py.ops import add, cont, conv_2d, permute, reshape, rope_multi
from ggml_py.ops.rope import VISION
from ggml_py.tensor import Tensor
from llama_py.batch import I32
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.linear import Norm, NormKind
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import VisionHParams
from llama_py.vision.layers import VisionFeedForward, VisionProjections, apply_norm, attend
from llama_py.vision.projectors._projector import Dynamic
from llama_py.vision.resize import Size
from llama_py.vision.vit import feed_forward
from llama_py.weights import Weights

FOUR = 4  # patches per row of the result


class MergingHParams(VisionHParams):
    min_tokens, max_tokens = 8, 4096
    n_merge: int = uint("vision.spatial_merge_size", 2)

    def load(self, keys: Keys) -> None:
        if self.n_merge != 2:
            raise keys.error("vision.spatial_merge_size", "must be 2")
        if self.n_embd_head % 4:
            raise keys.error(
                "vision.attention.head_count", "must give a head size that is a multiple of 4"
            )


class MergingLayer:
    """Attention and a feed-forward, each after a norm."""

    def __init__(self, w: Weights, hp: VisionHParams, kind: NormKind, swaps: bool) -> None:
        n = hp.n_embd
        self.ln1 = w.norm("ln1", n, kind=kind, bias=True)
        self.qkv = VisionProjections(w, n, hp.n_head, kind)
        self.out = w.linear("attn_out", n, n, bias=True, scaled=False)
        self.ln2 = w.norm("ln2", n, kind=kind, bias=True)
        self.ffn = feed_forward(w, hp, swaps)

    def __call__(
        self, g: ImageGraph, inp: Tensor, positions: Tensor, mask: Tensor | None, il: int
    ) -> Tensor:
        """Apply the layer: [n_embd, n_patches, 1] -> same shape."""
        qkv = self.qkv(g, g.cb(apply_norm(g, inp, self.ln1, il), "ln1", il), il)
        q, k = (
            g.cb(_rotate(t, positions), f"{x}cur_rope", il) for x, t in (("Q", qkv.q), ("K", qkv.k))
        )
        cur = g.cb(attend(g, qkv._replace(q=q, k=k), self.out, il, mask), "attn_out", il)
        inp = g.cb(add(cur, inp), "ffn_inp", il)
        cur = g.cb(apply_norm(g, inp, self.ln2, il), "ffn_inp_normed", il)
        return g.cb(add(inp, g.cb(self.ffn(g, cur, il), "ffn_out", il)), "layer_out", il)


def _rotate(t: Tensor, positions: Tensor) -> Tensor:
    d = t.ne[0]
    sections = (d // 4,) * 4
    return rope_multi(t, positions, None, d // 2, sections, VISION, 32768, 10000, 1, 0, 1, 32, 1)


class Merging(Dynamic):
    """Four patches become one row."""

    HParams = MergingHParams
    begin, end = "<|vision_start|>", "<|vision_end|>"
    kind: ClassVar[NormKind] = "layer"
    swaps: ClassVar[bool] = False

    def declare(self, w: Weights) -> None:
        hp, size, n = self.hp, self.hp.patch_size, self.hp.n_embd
        names = ("v.patch_embd.weight", "v.patch_embd.weight.1")
        self.kernels = [w.tensor(name, size, size, 3, n) for name in names]
        self.pre = w.optional_norm("v.pre_ln", n, kind=self.kind, bias=True)
        parts = (w.scope(f"v.blk.{il}.", il) for il in range(hp.n_layer))
        self.layers = [MergingLayer(part, hp, self.kind, self.swaps) for part in parts]
        self.post = w.optional_norm("v.post_ln", n, kind=self.kind, bias=True)
        self.merger = self.merging(w, "mm.0", "mm.2")
        self.n_embd_out = self.merger.down.weight.ne[1]

    def build(self, g: ImageGraph) -> Tensor:
        cur = self.frames(g)
        if self.pre is not None:
            cur = apply_norm(g, cur, self.pre)
        positions = g.positions("positions", on_four_axes(square_positions(g)))
        return self.merge_patches(g, self.apply_layers(g, cur, positions), None, self.merger)

    def merging(self, w: Weights, up: str, down: str) -> VisionFeedForward:
        """Make the layers that merge four patches into a row, in the file's sizes."""
        n = FOUR * self.hp.n_embd
        infos = w.info(f"{up}.weight"), w.info(f"{down}.weight")
        hidden = n if infos[0] is None else infos[0].ne[1]
        n_out = self.hp.n_embd_out if infos[1] is None else infos[1].ne[1]
        return VisionFeedForward(
            w.linear(up, n, hidden, bias="needed", scaled=False),
            w.linear(down, hidden, n_out, bias="needed", scaled=False),
            None,
            "gelu",
        )

    def frames(self, g: ImageGraph) -> Tensor:
        """Compute the patches of two equal frames. -> [n_embd, n_patches, 1]"""
        size, pixels = g.hp.patch_size, g.pixels()
        both = [conv_2d(kernel, pixels, size, size, 0, 0, 1, 1) for kernel in self.kernels]
        return fours(g, permute(add(both[0], both[1]), 1, 2, 0, 3))

    def apply_layers(
        self,
        g: ImageGraph,
        cur: Tensor,
        positions: Tensor,
        masks: Sequence[Tensor | None] = (),
        each: Callable[[Tensor, int], None] | None = None,
    ) -> Tensor:
        """Apply all layers: [n_embd, n_patches, 1] -> same shape.

        masks  mask of each layer;  each  called with each layer's result and number
        """
        for il, layer in enumerate(self.layers):
            cur = layer(g, cur, positions, masks[il] if masks else None, il)
            if each is not None:
                each(cur, il)
        return cur if self.post is None else apply_norm(g, cur, self.post, len(self.layers))

    def merge_patches(
        self, g: ImageGraph, cur: Tensor, norm: Norm | None, merger: VisionFeedForward, il: int = -1
    ) -> Tensor:
        """Merge four patches per row: [n_embd, n_patches, 1] -> [n_out, n_patches / 4, 1]."""
        cur = reshape(cur, FOUR * g.hp.n_embd, g.n_patches // FOUR, 1)
        if norm is not None:
            cur = apply_norm(g, cur, norm, il)
        return merger(g, cur, il)

    def grid(self, width: int, height: int) -> Size:
        return width // self.hp.step, height // self.hp.step


def fours(g: ImageGraph, cur: Tensor) -> Tensor:
    """Reorder patches from image rows to squares of four: [n_embd, nx, ny] -> [n_embd, n_patches,
    1]."""
    n = g.hp.n_embd
    cur = cont(cur, n * 2, g.nx // 2, g.ny, 1)
    cur = reshape(cur, n * 2, g.nx // 2, 2, g.ny // 2)
    return cont(permute(cur, 0, 2, 1, 3), n, g.nx * g.ny, 1)


def square_positions(g: ImageGraph) -> I32:
    """Return row and column of each patch in the order of `fours`, [2, n_patches]."""
    at = np.stack([g.rows, g.columns]).reshape(2, g.ny // 2, 2, g.nx // 2, 2)
    return np.ascontiguousarray(at.transpose(0, 1, 3, 2, 4).reshape(2, -1))


def on_four_axes(at: I32) -> I32:
    """Return rows, columns, rows, columns: [2, n] -> [4 * n]."""
    return np.concatenate([at, at]).reshape(-1)

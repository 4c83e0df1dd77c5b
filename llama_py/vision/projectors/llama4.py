"""Llama 4's vision encoder: tiles of an image plus the whole image (models/llama4.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import concat, cont, gelu, im2col, permute, reshape, view_2d
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.vision.graph import ImageGraph
from llama_py.vision.positions import turn_2d
from llama_py.vision.projectors._projector import F32 as Floats
from llama_py.vision.projectors._projector import Projector
from llama_py.vision.resize import U8
from llama_py.vision.tiles import tiles
from llama_py.vision.vit import ViT
from llama_py.weights import Weights

MOST = 3  # maximum tiles per side


class Llama4Projector(Projector):
    name = "llama4"
    begin, end = "<|image_start|>", "<|image_end|>"

    def declare(self, w: Weights) -> None:
        hp = self.hp
        n, n_in = hp.n_embd, hp.n_embd * hp.n_merge**2
        self.kernel = w.tensor("v.patch_embd.weight", hp.patch_size**2 * 3, n)
        self.whole = w.tensor("v.class_embd", n)
        self.learned = w.tensor("v.position_embd.weight", n, hp.n_side**2 + 1)
        self.vit = ViT(w, hp, "layer")
        names = [f"mm.model.{x}.weight" for x in ("mlp.1", "mlp.2", "fc")]
        self.mlp = []
        for name, usual in zip(names, (hp.n_ff, hp.n_ff, hp.n_embd_out), strict=True):
            info = w.info(name)
            n_out = usual if info is None else info.ne[1]
            self.mlp.append(w.tensor(name, n_in, n_out))
            n_in = n_out
        self.n_embd_out = n_in

    def build(self, g: ImageGraph) -> Tensor:
        n, size = g.hp.n_embd, g.hp.patch_size
        last = np.zeros(1, np.int32)  # the class token has no position
        rows = g.positions("pos_h", np.concatenate([g.rows + 1, last]))
        columns = g.positions("pos_w", np.concatenate([g.columns + 1, last]))

        def turn(t: Tensor) -> Tensor:
            return turn_2d(t, columns, rows, g.hp.rope_theta)

        kernel = reshape(self.kernel, size, size, 3, n)
        cur = im2col(kernel, g.pixels(), size, size, 0, 0, 1, 1, True, F32)
        cur = g.cb(reshape(g.mm(self.kernel, cur), n, g.n_patches), "patch_conv")
        cur = self.vit(g, concat(cur, self.whole, 1), self.learned, turn)
        cur = view_2d(cur, n, g.n_patches, cur.type.row_size(n), 0)
        cur = self._shuffle_pixels(g, cur)
        for weight in self.mlp[:2]:
            cur = gelu(g.mm(weight, cur))
        return g.cb(g.mm(self.mlp[2], g.cb(cur, "adapter_mlp")), "projected")

    def _shuffle_pixels(self, g: ImageGraph, cur: Tensor) -> Tensor:
        """Join squares of patches into rows: [n_embd, n_patches] -> [n_embd * s * s, n]."""
        n, s, side = g.hp.n_embd, g.hp.n_merge, g.nx
        cur = permute(reshape(cur, n * s, side // s, side, 1), 0, 2, 1, 3)
        cur = cont(cur, n * s * s, side // s, side // s, 1)
        cur = cont(cur, n * s * s, g.n_patches // s // s)
        return g.cb(cur, "pixel_shuffle")

    def prepare(self, image: U8) -> list[Floats]:
        parts = tiles(image, self.hp.image_size, MOST, self.resize)
        return [self.normalize_pixels(part) for part in parts]

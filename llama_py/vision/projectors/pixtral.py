"""Vision encoder of Pixtral and Mistral Small 3.1: rows of patches end with a token
(models/pixtral.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import (
    add,
    concat,
    cont,
    im2col,
    mul,
    permute,
    reshape,
    rms_norm,
    scale,
    view_2d,
    view_3d,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.gguf.keys import uint
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import MAX_PATCH, VisionHParams
from llama_py.vision.layers import VisionFeedForward
from llama_py.vision.positions import turn_2d
from llama_py.vision.projectors._projector import Dynamic
from llama_py.vision.vit import ViT
from llama_py.weights import Weights


class PixtralHParams(VisionHParams):
    min_tokens, max_tokens = 8, 1024
    n_merge: int = uint("vision.spatial_merge_size", 1, least=1, most=MAX_PATCH)


class Pixtral(Dynamic):
    name = "pixtral"
    HParams = PixtralHParams
    end = "[IMG_END]"

    def declare(self, w: Weights) -> None:
        hp = self.hp
        size, n = hp.patch_size, hp.n_embd
        self.kernel = w.tensor("v.patch_embd.weight", size, size, 3, n)
        self.bias = w.optional_tensor("v.patch_embd.bias", n)
        self.vit = ViT(w, hp, "rms")
        infos = w.info("mm.1.weight"), w.info("mm.2.weight")
        hidden = hp.n_ff if infos[0] is None else infos[0].ne[1]
        self.n_embd_out = hp.n_embd_out if infos[1] is None else infos[1].ne[1]
        self.out = VisionFeedForward(
            w.linear("mm.1", n, hidden, bias=True, scaled=False),
            w.linear("mm.2", hidden, self.n_embd_out, bias=True, scaled=False),
            None,
            "gelu",
        )
        self.row_end = w.tensor("v.token_embd.img_break", self.n_embd_out)
        self.merger = w.optional_tensor("mm.patch_merger.weight", n * hp.n_merge**2, n)
        self.norm: Tensor | None = None
        if self.merger is not None:
            self.norm = w.tensor("mm.input_norm.weight", n)

    def build(self, g: ImageGraph) -> Tensor:
        rows, columns = g.positions("pos_h", g.rows), g.positions("pos_w", g.columns)

        def turn(t: Tensor) -> Tensor:
            return turn_2d(t, rows, columns, g.hp.rope_theta, odd=True)

        cur = self.vit(g, g.patches(self.kernel, self.bias), turn=turn)
        if self.merger is not None and self.norm is not None:
            cur = self._merge_patches(g, mul(rms_norm(cur, g.hp.eps), self.norm), self.merger)
        return self._with_ends(g, self.out(g, cur))

    def _merge_patches(self, g: ImageGraph, cur: Tensor, merger: Tensor) -> Tensor:
        """Merge squares of patches: [n_embd, n_patches, 1] -> [n_embd, n]."""
        size = g.hp.n_merge
        cur = cont(permute(reshape(cur, g.hp.n_embd, g.nx, g.ny), 2, 0, 1, 3))
        kernel = view_3d(cur, size, size, cur.ne[2], 0, 0, 0)
        cur = im2col(kernel, cur, size, size, 0, 0, 1, 1, True, F32)
        return g.mm(merger, reshape(cur, cur.ne[0], cur.ne[1] * cur.ne[2]))

    def _with_ends(self, g: ImageGraph, cur: Tensor) -> Tensor:
        """Insert the end-of-row token after each row but the last: [n_out, nx * ny] -> [n_out,
        n]."""
        n, nx, ny = cur.ne[0], g.nx // g.hp.n_merge, g.ny // g.hp.n_merge
        nothing = g.input("", F32, np.zeros(n * ny, np.float32), n, 1, ny)
        ends = add(scale(nothing, 0.0), self.row_end)
        cur = concat(reshape(cur, n, nx, ny), ends, 1)
        return view_2d(cur, n, nx * ny + ny - 1, cur.type.row_size(n), 0)

    def n_tokens(self, width: int, height: int) -> int:
        columns, rows = width // self.hp.step, height // self.hp.step
        return columns * rows + rows - 1

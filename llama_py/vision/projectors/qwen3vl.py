"""Qwen3VL's vision encoder: learned positions, and tokens for later layers
(models/qwen3vl.cpp)."""

from __future__ import annotations

import math

from ggml_py.ops import add, concat, cont, interpolate, permute, reshape
from ggml_py.tensor import Tensor
from llama_py.graph.linear import Norm
from llama_py.vision.graph import ImageGraph
from llama_py.vision.layers import VisionFeedForward, apply_norm
from llama_py.vision.projectors._qwen import FOUR, Merging, fours, on_four_axes, square_positions
from llama_py.weights import Weights


class Qwen3VLProjector(Merging):
    """Encoder with deepstack: merger blocks, by layer, that make tokens of its result."""

    name = "qwen3vl_merger"

    def declare(self, w: Weights) -> None:
        super().declare(w)
        n, info = self.hp.n_embd, w.info("v.position_embd.weight")
        self.bias = w.tensor("v.patch_embd.bias", n)
        self.n_side = self.hp.n_side if info is None else math.isqrt(info.ne[1])
        self.learned = w.tensor("v.position_embd.weight", n, self.n_side**2)
        self.deepstack: dict[int, tuple[Norm, VisionFeedForward]] = {}
        for il in range(self.hp.n_layer):
            if w.has(f"v.deepstack.{il}.fc1.weight"):
                part = w.scope(f"v.deepstack.{il}.")
                norm = part.norm("norm", FOUR * n, kind="layer", bias=True)
                self.deepstack[il] = norm, self.merging(part, "fc1", "fc2")
        self.n_embd_out *= 1 + len(self.deepstack)

    def build(self, g: ImageGraph) -> Tensor:
        cur = g.cb(add(self.frames(g), self.bias), "patch_bias")
        cur = g.cb(add(cur, fours(g, self._positions(g))), "inp_pos_emb")
        positions = g.positions("positions", on_four_axes(square_positions(g)))
        if self.pre is not None:
            cur = apply_norm(g, cur, self.pre)
        more: Tensor | None = None

        def deeper(cur: Tensor, il: int) -> None:
            nonlocal more
            if il in self.deepstack:
                rows = self.merge_patches(g, cur, *self.deepstack[il], il)
                more = rows if more is None else concat(more, rows, 0)

        cur = self.apply_layers(g, cur, positions, each=deeper)
        cur = self.merge_patches(g, cur, None, self.merger)
        return cur if more is None else concat(cur, more, 0)

    def _positions(self, g: ImageGraph) -> Tensor:
        """Return learned position embeddings, resized to the patches. [n_embd, n_patches]"""
        side, n = self.n_side, g.hp.n_embd
        if (g.nx, g.ny) == (side, side):
            return self.learned
        cur = permute(reshape(self.learned, n, side, side), 2, 0, 1, 3)
        cur = interpolate(cur, g.nx, g.ny, n, 1, "bilinear", align_corners=True)
        return cont(permute(cur, 1, 2, 0, 3), n, g.nx * g.ny)

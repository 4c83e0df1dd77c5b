"""Gemma4's vision encoders: pooled patches with clamped products, or one matrix per patch
(models/gemma4v.cpp, gemma4uv.cpp)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ggml_py.errors import ModelError, WeightsError
from ggml_py.ops import (
    add,
    cont,
    conv_2d,
    get_rows,
    im2col,
    mul,
    mul_mat,
    pool_2d,
    reshape,
    rms_norm,
    scale,
    sub,
    transpose,
    view_2d,
)
from ggml_py.ops import clamp as clamp_op
from ggml_py.ops.rope import NEOX
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.gguf.keys import Keys, uint
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import MAX_PATCH, VisionHParams
from llama_py.vision.layers import apply_norm
from llama_py.vision.positions import turn_2d
from llama_py.vision.projectors._projector import F32 as Floats
from llama_py.vision.projectors._projector import Dynamic
from llama_py.vision.resize import U8
from llama_py.vision.vit import ViT
from llama_py.weights import Weights

LARGEST = float(np.finfo(np.float32).max)
CAUSAL = (1536, 2560)  # n_embd of text models with causal attention in images
Limits = tuple[float, float, float, float]  # limits of a matrix's input and of its result


class Gemma4VisionHParams(VisionHParams):
    min_tokens, max_tokens = 70, 1120
    rope_theta = 100.0
    n_merge: int = uint("vision.projector.scale_factor", 3, least=1, most=MAX_PATCH)


class _Gemma4(Dynamic):
    """n_places  rows of the table of positions, of columns, then of rows"""

    HParams = Gemma4VisionHParams
    begin, end = "<|image>", "<image|>"

    def declare(self, w: Weights) -> None:
        hp, info = self.hp, w.info("v.position_embd.weight")
        self.n_places = hp.n_side if info is None else info.ne[1]
        self.learned = w.tensor("v.position_embd.weight", hp.n_embd, self.n_places, 2)
        info = w.info("mm.input_projection.weight")
        self.n_embd_out = hp.n_embd_out if info is None else info.ne[1]
        self.out = w.tensor("mm.input_projection.weight", hp.n_embd, self.n_embd_out)

    def add_positions(self, g: ImageGraph, cur: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
        """Add position embeddings: [n_embd, n_patches] -> same shape."""
        n, many, t = g.hp.n_embd, self.n_places, self.learned
        row = t.type.row_size(n)
        x, y = (view_2d(t, n, many, row, i * many * row) for i in range(2))
        at_x, at_y = get_rows(x, columns), get_rows(y, rows)
        return g.cb(add(add(cur, at_x), at_y), "pos_embd")

    def project(self, g: ImageGraph, cur: Tensor) -> Tensor:
        return g.cb(g.mm(self.out, rms_norm(cur, g.hp.eps)), "projected")

    def prepare(self, image: U8) -> list[Floats]:
        found = super().prepare(image)
        patches = max(found[0].shape[:2]) // self.hp.patch_size
        if patches > self.n_places:
            raise ModelError(
                f"an image has {patches} patches per side, more than the model's {self.n_places} "
                "positions; use an image that is less long or less wide"
            )
        return found


class ClampedGraph(ImageGraph):
    """Graph with limits on the inputs and results of matrices."""

    limits: Mapping[str, Limits]

    def mm(self, weight: Tensor, x: Tensor) -> Tensor:
        low_in, high_in, low, high = self.limits[weight.name]
        return clamp_op(mul_mat(weight, clamp_op(x, low_in, high_in)), low, high)


class Gemma4Eyes(_Gemma4):
    name = "gemma4v"
    Graph = ClampedGraph

    def declare(self, w: Weights) -> None:
        super().declare(w)
        hp = self.hp
        size, n = hp.patch_size, hp.n_embd
        self.kernel = w.tensor("v.patch_embd.weight", size, size, 3, n)
        self.vit = ViT(w, hp, "rms", turn_values=True)
        self.std_bias = w.optional_tensor("v.std_bias", n)
        self.std_scale = w.optional_tensor("v.std_scale", n)
        names = [t.name for t in w.all_tensors if t.name.endswith(".weight")]
        self.limits = {name: _limits(w, name.removesuffix("weight")) for name in names}

    def build(self, g: ImageGraph) -> Tensor:
        assert isinstance(g, ClampedGraph)
        g.limits, g.kq_scale = self.limits, 1.0
        n, size, merge = g.hp.n_embd, g.hp.patch_size, g.hp.n_merge
        pixels = g.cb(scale(g.pixels(), 2.0, -1.0), "inp_raw_scaled")
        cur = conv_2d(self.kernel, pixels, size, size, 0, 0, 1, 1)
        cur = g.cb(cont(transpose(reshape(cur, g.n_patches, n, 1))), "inp")
        columns, rows = g.positions("pos_x", g.columns), g.positions("pos_y", g.rows)

        def turn(t: Tensor) -> Tensor:
            return turn_2d(t, columns, rows, g.hp.rope_theta, mode=NEOX)

        cur = self.vit(g, self.add_positions(g, cur, columns, rows), turn=turn)
        cur = cont(transpose(cur), g.nx, g.ny, n, 1)
        cur = pool_2d(cur, "avg", merge, merge, merge, merge, 0, 0)
        cur = cont(transpose(reshape(cur, (g.nx // merge) * (g.ny // merge), n, 1)))
        cur = g.cb(scale(cur, math.sqrt(n)), "pooled")
        if self.std_bias is not None and self.std_scale is not None:
            cur = g.cb(mul(sub(cur, self.std_bias), self.std_scale), "std_scaled")
        return self.project(g, cur)

    def sees_all(self, n_embd: int) -> bool:
        return n_embd not in CAUSAL


class UnifiedHParams(Gemma4VisionHParams):
    n_head: int = uint("vision.attention.head_count")
    n_head_kv: int = 0
    n_embd_head: int = 0

    def load(self, keys: Keys) -> None:
        self.patch_size, self.n_merge = self.patch_size * self.n_merge, 1
        self.n_layer = 0  # no transformer


class UnifiedEyes(_Gemma4):
    """Encoder without a transformer: one matrix per patch."""

    name = "gemma4uv"
    HParams = UnifiedHParams

    def declare(self, w: Weights) -> None:
        super().declare(w)
        n, n_in = self.hp.n_embd, self.hp.patch_size**2 * 3
        self.norms = [
            w.norm(f"v.patch_norm.{i}", n_of, kind="layer", bias="needed")
            for i, n_of in ((1, n_in), (2, n), (3, n))
        ]
        for norm in self.norms:
            norm.eps = 1e-5
        self.kernel = w.tensor("v.patch_embd.weight", n_in, n)
        self.bias = w.tensor("v.patch_embd.bias", n)

    def build(self, g: ImageGraph) -> Tensor:
        size, f32 = g.hp.patch_size, np.float32
        kernel = g.input("", F32, np.zeros(size * size * 3, f32), size, size, 3)
        cur = im2col(kernel, g.pixels(), size, size, 0, 0, 1, 1, True, F32)
        cur = apply_norm(g, reshape(cur, cur.ne[0], cur.ne[1] * cur.ne[2]), self.norms[0])
        cur = apply_norm(g, add(mul_mat(self.kernel, cur), self.bias), self.norms[1])
        columns, rows = g.positions("pos_x", g.columns), g.positions("pos_y", g.rows)
        cur = apply_norm(g, self.add_positions(g, cur, columns, rows), self.norms[2])
        return self.project(g, cur)

    def sees_all(self, n_embd: int) -> bool:
        return True


def _limits(w: Weights, stem: str) -> Limits:
    """Return the limits that the file has for a matrix, else infinite limits."""
    usual = {
        "input_min": -LARGEST,
        "input_max": LARGEST,
        "output_min": -LARGEST,
        "output_max": LARGEST,
    }
    found = []
    for name, value in usual.items():
        info = w.info(f"{stem}{name}")
        if info is not None:
            if info.type is not F32 or info.nbytes != 4:
                raise WeightsError(
                    f"{w.source}: {stem}{name} must be one F32 number; convert the model again"
                )
            value = float(info.data.view(np.float32)[0])
        found.append(value)
    return found[0], found[1], found[2], found[3]

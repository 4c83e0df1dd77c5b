"""Matrices with optional scales, biases and adapters, and norms
(llama-graph.cpp:build_lora_mm, build_norm)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ggml_py._moved import Former
from ggml_py.ops import (
    add,
    add_id,
    get_rows,
    mul,
    mul_mat,
    mul_mat_id,
    norm,
    repeat_4d,
    reshape,
    rms_norm,
)
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder

NormKind = Literal["rms", "layer"]


@dataclass(slots=True)
class Linear:
    """y = scale * (weight x) + bias.  weight [n_in, n_out], bias [n_out], scale [1]

    prec  "f32": sums need more than half precision
    before_bias  name of the result without the bias
    in_prec  "f32": inputs exceed the range of half precision
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: Tensor | None = None
    prec: str = "default"
    before_bias: str = ""
    in_prec: str = "default"

    def product(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Multiply by the weight: [n_in, n] -> [n_out, n]."""
        return mul_mat(self.weight, g.rotate(self.weight, x), self.prec, self.in_prec)

    def matmul(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """scale * (weight x), without the bias. [n_in, n] -> [n_out, n]"""
        res = self.product(g, x)
        res = res if self.scale is None else mul(res, self.scale)
        return g.params.loras.add_terms(res, self.weight, x)

    def __call__(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Multiply, scale and add the bias: [n_in, n] -> [n_out, n]."""
        res = self.matmul(g, x)
        if self.bias is None:
            return res
        return add(g.cb(res, self.before_bias) if self.before_bias else res, self.bias)

    scaled = Former("matmul")


@dataclass(slots=True)
class ExpertLinear:
    """A matrix for each expert.  weight [n_in, n_out, n_expert], bias [n_out, n_expert],
    scale [n_expert]

    in_prec  "f32": inputs exceed the range of half precision
    first, of   the weight has the experts from `first` on, out of `of`; bias and scale have all
                experts. 0: the weight has all experts as well
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: Tensor | None = None
    in_prec: str = "default"
    first: int = 0
    of: int = 0

    def __call__(self, g: GraphBuilder, x: Tensor, ids: Tensor, name: str, il: int) -> Tensor:
        """Multiply each token by the matrices of its experts (build_lora_mm_id).

        x [n_in, 1 or n_used, n_tokens], ids [n_used, n_tokens] -> [n_out, n_used, n_tokens]
        """
        cur = g.rotate(self.weight, x)
        cur = mul_mat_id(self.weight, cur, ids, self.in_prec, self.first, self.of)
        if self.scale is not None:
            n_expert = self.scale.ne[0]
            scales = reshape(self.scale, 1, n_expert, 1)
            scales = repeat_4d(scales, 1, n_expert, x.ne[2], 1)
            cur = mul(cur, get_rows(scales, ids))
        here = self.first, self.of
        cur = g.params.loras.add_to_experts(cur, self.weight, x, ids, here)
        g.cb(cur, name, il)
        if self.scale is not None:
            g.cb(cur, f"{name}_scaled", il)
        if self.bias is not None:
            cur = g.cb(add_id(cur, self.bias, ids), f"{name}_biased", il)
        return cur


@dataclass(slots=True)
class Norm:
    """Rows scaled to mean square one ("rms"), or also shifted to mean zero ("layer"), times a
    weight, plus a bias. weight, bias [n]

    eps  replaces the model's; then rows without the weight have no name
    """

    weight: Tensor | None = None
    bias: Tensor | None = None
    kind: NormKind = "rms"
    eps: float = 0.0

    def __call__(self, g: GraphBuilder, cur: Tensor, name: str = "", il: int = -1) -> Tensor:
        """Normalize cur [n, ...] and name the result if `name` is not empty. -> like cur"""
        rms = self.kind == "rms"
        eps = self.eps or (g.hp.f_norm_rms_eps if rms else g.hp.f_norm_eps)
        cur = rms_norm(cur, eps) if rms else norm(cur, eps)
        if not self.eps and (self.weight is not None or self.bias is not None):
            g.cb(cur, "norm", il)
        if self.weight is not None:
            cur = mul(cur, self.weight)
            if self.bias is not None:
                g.cb(cur, "norm_w", il)
        if self.bias is not None:
            cur = add(cur, self.bias)
        return g.cb(cur, name, il) if name else cur

"""Blocks of vision encoders with their weights (clip.cpp:clip_graph::build_norm, build_ffn,
build_attn)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggml_py.ops import (
    add,
    cast,
    cont,
    flash_attn_ext,
    geglu_quick_split,
    geglu_split,
    gelu,
    gelu_quick,
    mul,
    norm,
    permute,
    reshape,
    rms_norm,
    silu,
    soft_max_ext,
    swiglu_split,
    view_4d,
)
from ggml_py.ops import mul_mat as product
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from llama_py.graph.linear import Linear, Norm, NormKind
from llama_py.vision.graph import ImageGraph
from llama_py.weights import Weights

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "silu": silu,
    "gelu_quick": gelu_quick,
}
GATED: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "gelu": ("geglu", geglu_split),
    "silu": ("swiglu", swiglu_split),
    "gelu_quick": ("geglu_quick", geglu_quick_split),
}


def apply_norm(g: ImageGraph, cur: Tensor, n: Norm, il: int = -1) -> Tensor:
    """Normalize rows, multiply by a weight and add a bias: [n, ...] -> same shape."""
    eps = n.eps or g.hp.eps
    cur = rms_norm(cur, eps) if n.kind == "rms" else norm(cur, eps)
    if n.weight is not None:
        cur = g.cb(mul(cur, n.weight), "norm_w", il)
    return cur if n.bias is None else g.cb(add(cur, n.bias), "norm_b", il)


def linear(g: ImageGraph, w: Linear, cur: Tensor) -> Tensor:
    """Multiply and add the bias: [n_in, n] -> [n_out, n]."""
    cur = g.mm(w.weight, cur)
    return cur if w.bias is None else add(cur, w.bias)


class VisionFeedForward(NamedTuple):
    """down(act(up x)), or down(act(gate x) * up x)."""

    up: Linear
    down: Linear
    gate: Linear | None
    activation: str

    def __call__(self, g: ImageGraph, x: Tensor, il: int = -1) -> Tensor:
        """Apply the feed-forward network: [n_embd, n] -> [n_out, n]."""
        cur = self._part(g, self.up, x, "ffn_up", il)
        if self.gate is None:
            cur = g.cb(PLAIN[self.activation](cur), f"ffn_{self.activation}", il)
        else:
            name, function = GATED[self.activation]
            gate = self._part(g, self.gate, x, "ffn_gate", il)
            cur = g.cb(function(gate, cur), f"ffn_{name}", il)
        cur = g.mm(self.down.weight, cur)
        return cur if self.down.bias is None else add(g.cb(cur, "ffn_down", il), self.down.bias)

    def _part(self, g: ImageGraph, w: Linear, x: Tensor, name: str, il: int) -> Tensor:
        cur = g.cb(g.mm(w.weight, x), name, il)
        return cur if w.bias is None else g.cb(add(cur, w.bias), f"{name}_b", il)


class VisionQKV(NamedTuple):
    """Each [n_embd_head, n_head, n_pos]."""

    q: Tensor
    k: Tensor
    v: Tensor


def attend(
    g: ImageGraph, qkv: VisionQKV, out: Linear, il: int, mask: Tensor | None = None
) -> Tensor:
    """Attend from each position to all positions, or only to visible ones. -> [n_embd, n_pos]

    mask  F16 or F32 [n_pos, n_pos]
    """
    for t in qkv:
        g.expand(t)
    q, k = permute(qkv.q, 0, 2, 1, 3), permute(qkv.k, 0, 2, 1, 3)
    if g.flash:
        v = permute(qkv.v, 0, 2, 1, 3)
        k, v = cast(k, F16), cast(v, F16)
        seen = None if mask is None else cast(mask, F16)
        cur = flash_attn_ext(q, k, v, seen, g.kq_scale, prec="f32")
        cur = reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
    else:
        v = cont(permute(qkv.v, 1, 2, 0, 3))
        weights = soft_max_ext(product(k, q), mask, g.kq_scale, 0.0)
        cur = permute(product(v, weights), 0, 2, 1, 3)
        cur = cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
    return linear(g, out, g.cb(cur, "kqv_out", il))


class VisionProjections:
    """Queries, keys and values of a layer: three matrices or a joint one, with optional norms."""

    def __init__(self, w: Weights, n_embd: int, n_head: int, kind: NormKind) -> None:
        self.n_head, self.size = n_head, n_embd // n_head
        self.joint = w.optional_linear("attn_qkv", n_embd, 3 * n_embd, bias=True, scaled=False)
        self.each: list[Linear] = []
        if self.joint is None:
            self.each = [
                w.linear(f"attn_{x}", n_embd, n_embd, bias=True, scaled=False) for x in "qkv"
            ]
        info = w.info("attn_q_norm.weight")
        whole = info is not None and info.ne[0] == n_embd != self.size
        self.norms_rows = whole and self.joint is None  # norms over whole rows instead of heads
        n = n_embd if self.norms_rows else self.size
        self.norms = [w.optional_norm(f"attn_{x}_norm", n, kind=kind) for x in "qk"]

    def __call__(self, g: ImageGraph, cur: Tensor, il: int) -> VisionQKV:
        """Project to queries, keys and values, [n_embd_head, n_head, n_pos] each."""
        if self.joint is not None:
            q, k, v = self._parts(linear(g, self.joint, cur))
            q, k = self._normalize_qk(g, q, k, "norm", il)
        else:
            q, k, v = (linear(g, w, cur) for w in self.each)
            if self.norms_rows:
                q, k = self._normalize_qk(g, q, k, "norm", il)
            q, k, v = (reshape(t, self.size, self.n_head, t.ne[1], 1) for t in (q, k, v))
            if not self.norms_rows:
                q, k = self._normalize_qk(g, q, k, "norm_per_head", il)
        return VisionQKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))

    def _normalize_qk(
        self, g: ImageGraph, q: Tensor, k: Tensor, name: str, il: int
    ) -> tuple[Tensor, Tensor]:
        if self.norms[0] is not None:
            q = g.cb(apply_norm(g, q, self.norms[0], il), f"Qcur_{name}", il)
        if self.norms[1] is not None:
            k = g.cb(apply_norm(g, k, self.norms[1], il), f"Kcur_{name}", il)
        return q, k

    def _parts(self, cur: Tensor) -> list[Tensor]:
        """Return views of queries, keys and values in one tensor."""
        row, n = cur.type.row_size, cur.ne[1]
        n_embd = self.size * self.n_head
        strides = row(self.size), cur.nb[1], cur.nb[1] * n
        return [
            view_4d(cur, self.size, self.n_head, n, 1, *strides, row(i * n_embd)) for i in range(3)
        ]

"""Attention over a cache (llama-graph.cpp:build_qkv, build_attn)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ggml_py._moved import Former, adopt
from ggml_py.errors import HParamsError
from ggml_py.ops import add, clamp, concat, cont, pad, reshape, scale, view_4d
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import heads, inv_sqrt, split
from llama_py.blocks.rope import RopeFactors, rope
from llama_py.blocks.softmax import Scores, mha
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import LayerShape
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import KVCacheSpec
from llama_py.weights import Bias, Weights


class QKV(NamedTuple):
    """Queries [d, n_head, n_tokens], keys and values [d, n_head_kv, n_tokens]; or not yet split
    into heads: [d * n_head, n_tokens]."""

    q: Tensor
    k: Tensor
    v: Tensor


class Projections:
    """Queries, keys and values by one matrix (attn_qkv) or by three
    (llama-model.cpp:create_tensor_qkv, llama-graph.cpp:build_qkv).

    heads  sizes and numbers of the heads of queries, keys and values
    """

    def __init__(
        self,
        w: Weights,
        n_embd: int,
        shape: LayerShape,
        *,
        n_embd_head_q: int = 0,
        bias: Bias = True,
        scaled: bool = True,
        joined: bool = False,
        needed: Literal["qkv", "qk", "q"] = "qkv",
    ) -> None:
        """Declare one joint matrix or up to three separate matrices.
        n_embd_head_q: dimensions of a query head that also carries a gate
        joined: it must be one matrix
        needed: "qk": without a separate matrix, the values are the keys; "q": separate matrices of
                keys and values are not used
        """
        self.heads = (
            (n_embd_head_q or shape.n_embd_head_k, shape.n_head),
            (shape.n_embd_head_k, shape.n_head_kv),
            (shape.n_embd_head_v, shape.n_head_kv),
        )
        sizes = [d * n for d, n in self.heads]
        stems = "attn_q", "attn_k", "attn_v"
        self.joint: Linear | None = None
        self.parts: Sequence[Linear] = ()
        self.old_biases: Sequence[Tensor | None] = ()
        if joined or w.has("attn_qkv.weight"):
            self.joint = w.linear(
                "attn_qkv", n_embd, sum(sizes), bias=bias, scaled=scaled, sections=sizes
            )
            if self.joint.bias is None and bias:  # old files have one matrix but three biases
                pairs = zip(stems, sizes, strict=True)
                kind: Bias = "unread" if bias == "unread" else True
                self.old_biases = [w.bias(s, (n,), kind) for s, n in pairs]
        else:
            if needed == "q":
                w.skip(*(f"{stem}.{what}" for stem in stems[1:] for what in ("weight", "scale")))
            n_parts = len(needed)
            if needed == "qk" and w.has("attn_v.weight"):
                n_parts = 3
            self.parts = [
                w.linear(stem, n_embd, n, bias=bias, scaled=scaled)
                for stem, n in [*zip(stems, sizes, strict=True)][:n_parts]
            ]

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """Project cur [n_embd, n_tokens] to heads named Qcur, Kcur and Vcur."""
        names = ("Qcur", "Kcur", "Vcur")
        if self.joint is not None:
            qkv, offset, parts = _clamp(g, self._joint(g, cur, il), "wqkv", il), 0, []
            for d, n_head in self.heads:
                parts.append(heads(qkv, d, n_head, g.n_tokens, offset=offset))
                offset += d * n_head
        else:
            parts = [
                reshape(self._part(g, w, cur, name, il), d, n_head, g.n_tokens)
                for w, name, (d, n_head) in zip(self.parts, names, self.heads, strict=True)
            ]
        return self.name_heads(g, QKV(*parts), il)

    def name_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        """Name the heads Qcur, Kcur and Vcur, and return them."""
        for t, name in zip(qkv, ("Qcur", "Kcur", "Vcur"), strict=True):
            g.cb(t, name, il)
        return qkv

    def rows(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """Project cur [n_embd, n_tokens] to unnamed rows [d * n_head, n_tokens]."""
        if self.joint is not None:
            qkv = self._joint(g, cur, il)
            return QKV(*map(cont, split(qkv, [d * n for d, n in self.heads])))
        parts = [w(g, cur) for w in self.parts]
        return QKV(*parts, *parts[-1:] * (3 - len(parts)))

    def queries(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Project cur [n_embd, n_tokens] to query rows only: [d * n_head, n_tokens]."""
        return self.parts[0](g, cur) if self.joint is None else self.rows(g, cur, il).q

    def _joint(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        assert self.joint is not None
        qkv, bias = g.cb(self.joint.matmul(g, cur), "wqkv", il), self.joint.bias
        old = [b for b in self.old_biases if b is not None]
        if bias is None and len(old) == 3:
            bias = concat(concat(old[0], old[1], 0), old[2], 0)
        return qkv if bias is None else g.cb(add(qkv, bias), "wqkv_b", il)

    def _part(self, g: GraphBuilder, w: Linear, cur: Tensor, name: str, il: int) -> Tensor:
        part = g.cb(w.matmul(g, cur), name, il)
        part = part if w.bias is None else g.cb(add(part, w.bias), name, il)
        return _clamp(g, part, name, il)

    named = Former("name_heads")


class RowProjections(Projections):
    """Queries, keys and values are named, then split into heads."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        rows = self.rows(g, cur, il)
        for t, name in zip(rows, ("Qcur", "Kcur", "Vcur"), strict=True):
            g.cb(t, name, il)
        return QKV(*(reshape(t, *n, g.n_tokens) for t, n in zip(rows, self.heads, strict=True)))


def _clamp(g: GraphBuilder, x: Tensor, name: str, il: int) -> Tensor:
    """Clamp x to the model's `clamp_kqv`, if it is set."""
    most = g.hp.clamp_kqv
    return g.cb(clamp(x, -most, most), f"{name}_clamped", il) if most else x


def attend(g: GraphBuilder, qkv: QKV, il: int, how: Scores, mask: Tensor | None = None) -> Tensor:
    """Store keys and values, and attend to all cells that the mask allows; mask: replaces the
    cache's. -> [d_v * n_head, n_tokens]"""
    inp = g.inp_attn(il)
    if inp.k_rot is not None:
        qkv = qkv._replace(q=rotate(qkv.q, inp.k_rot), k=rotate(qkv.k, inp.k_rot))
    if inp.v_rot is not None:
        qkv = qkv._replace(v=rotate(qkv.v, inp.v_rot))
    expand_together(g, qkv)
    g.expand(inp.mctx.cpy_k(qkv.k, inp.k_idxs, il))
    assert inp.v_idxs is not None
    g.expand(inp.mctx.cpy_v(qkv.v, inp.v_idxs, il))
    return _attend_layer(g, qkv.q, il, how, mask)


def attend_again(g: GraphBuilder, q: Tensor, il: int, how: Scores) -> Tensor:
    """Attend to another layer's cache. q [d, n_head, n_tokens] -> [d_v * n_head, n_tokens]"""
    rot = g.inp_attn(il).k_rot
    q = q if rot is None else rotate(q, rot)
    g.expand(q)
    return _attend_layer(g, q, il, how)


def _attend_layer(
    g: GraphBuilder, q: Tensor, il: int, how: Scores, mask: Tensor | None = None
) -> Tensor:
    inp = g.inp_attn(il)
    k, v = inp.mctx.get_k(il), inp.mctx.get_v(il)
    mask = inp.kq_mask if mask is None else mask
    cur = g.cb(mha(g, q, k, v, mask, il, how), "kqv_out", il)
    return cur if inp.v_rot is None else rotate(cur, inp.v_rot)  # its own inverse


def attend_latent(
    g: GraphBuilder, qkv: QKV, il: int, how: Scores, mask: Tensor | None = None
) -> Tensor:
    """`attend` with a cache of keys only: the values are their first d_v dimensions, which
    how.v_mla unpacks. mask: replaces the cache's"""
    inp = g.inp_attn(il)
    expand_together(g, qkv)
    g.expand(inp.mctx.cpy_k(qkv.k, inp.k_idxs, il))
    k = inp.mctx.get_k(il)
    v = view_4d(k, qkv.v.ne[0], *k.ne[1:], *k.nb[1:], 0)
    mask = inp.kq_mask if mask is None else mask
    return g.cb(mha(g, qkv.q, k, v, mask, il, how), "kqv_out", il)


def attend_within(
    g: GraphBuilder, qkv: QKV, il: int, how: Scores, mask: Tensor | None = None
) -> Tensor:
    """Attend to the tokens of the ubatch, without a cache; mask: replaces the usual mask.
    -> [d_v * n_head, n_tokens]"""
    mask = g.inp_no_cache(g.hp.layers[il].window).kq_mask if mask is None else mask
    for t in qkv.q, qkv.k, qkv.v:
        g.expand(t)
    if g.hp.within_step > 1:  # also without a rest
        rest = mask.ne[0] - g.n_tokens
        qkv = QKV(qkv.q, *(pad(t, 0, 0, rest, 0) for t in (qkv.k, qkv.v)))
    return g.cb(mha(g, *qkv, mask, il, how), "kqv_out", il)


def expand_together(g: GraphBuilder, qkv: QKV) -> None:
    """Expand queries, keys and values in llama.cpp's order, which depends on sliding windows."""
    for t in (qkv.q, qkv.k, qkv.v) if g.hp.has_windows else (qkv.q, qkv.v, qkv.k):
        g.expand(t)


HeadNorms = tuple[Norm | None, Norm | None]


def head_norms(w: Weights, hp: HParams, bias: Bias = False) -> HeadNorms:
    """Declare per-head norms of queries and keys."""
    d = hp.layers[w.il].n_embd_head_k
    return w.norm("attn_q_norm", d, bias=bias), w.norm("attn_k_norm", d, bias=bias)


class Attention:
    """Multi-head attention: project, norm queries and keys, apply RoPE, attend, project.

    An architecture overrides the step that differs.

    out_scaled  see `Weights.linear`, for the projection from heads
    sinks       F32 [n_head] an additional score per head without a value
    """

    parts_keep = KVCacheSpec
    out_scaled = True
    sinks: Tensor | None = None

    def __init__(
        self,
        w: Weights,
        hp: HParams,
        *,
        qkv: Projections | None = None,
        out_bias: Bias = False,
        norms: HeadNorms = (None, None),
        factors: RopeFactors | None = None,
        name: str = "",
        turned: tuple[str, str] = ("Qcur", "Kcur"),
    ) -> None:
        """Declare the weights of the layer.
        qkv      projections to heads; default: `Projections`
        out_bias  bias of the projection from heads
        norms     norms of query heads and of key heads
        factors   factors of RoPE's frequencies
        name      name of the result
        turned    names of queries and keys after RoPE
        """
        shape = hp.layers[w.il]
        if not (shape.n_head and shape.n_head_kv):
            raise HParamsError(
                f"{hp.arch}.attention: head_count and head_count_kv of layer {w.il} must be at "
                f"least 1, got {shape.n_head} and {shape.n_head_kv}; convert the model again"
            )
        self.qkv = qkv or Projections(w, hp.n_embd, shape)
        self.output = w.linear(
            "attn_output", shape.n_embd_v_out, hp.n_embd, bias=out_bias, scaled=self.out_scaled
        )
        (self.q_norm, self.k_norm), self.factors, self.turned = norms, factors, turned
        self.kq_scale = hp.attention_scale or inv_sqrt(shape.n_embd_head_k)
        self.cached, self.name = hp.cached, name

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Project, norm, rotate and attend: [n_embd, n_tokens] -> same shape."""
        return self.attend_and_project(g, self.normalize_heads(g, self.project(g, cur, il), il), il)

    def attend_and_project(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        """Attend with given heads and project the result to [n_embd, n_tokens]."""
        cur = self.output(g, self.attend(g, qkv, il))
        return g.cb(cur, self.name, il) if self.name else cur

    def attend(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        """Apply RoPE and attend; return the joined heads [d_v * n_head, n_tokens]."""
        q, k = self.place(g, qkv, il)
        how = self.scores(g, il)
        return (attend if self.cached else attend_within)(g, QKV(q, k, qkv.v), il, how)

    def scores(self, g: GraphBuilder, il: int) -> Scores:
        """Return the scale and sinks that convert products of queries and keys to weights."""
        return Scores(self.kq_scale, self.sinks)

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """Project cur [n_embd, n_tokens] to queries, keys and values."""
        return self.qkv(g, cur, il)

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        """Normalize each head of queries and keys [d, H, n_tokens], if the model has such norms."""
        q, k, v = qkv
        if self.q_norm is not None:
            q = self.q_norm(g, q, "Qcur_normed", il)
        if self.k_norm is not None:
            k = self.k_norm(g, k, "Kcur_normed", il)
        return QKV(q, k, v)

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        """Apply RoPE to queries and keys [d, H, n_tokens]."""
        factors = None if self.factors is None else self.factors(g.cparams)
        q, k = (rope(g, x, il, factors) for x in (qkv.q, qkv.k))
        return g.cb(q, self.turned[0], il), g.cb(k, self.turned[1], il)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        adopt(cls)

    attended = Former("attend_and_project")
    seen = Former("attend")
    normed = Former("normalize_heads")


class RopeInSomeLayers(Attention):
    """Queries and keys keep their names in layers without RoPE."""

    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return (qkv.q, qkv.k) if g.hp.layers[il].rope is None else super().place(g, qkv, il)


class LateNormedAttention(Attention):
    """Queries and keys are normed after RoPE."""

    parts_keep = KVCacheSpec

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        return qkv

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        q, k = super().place(g, qkv, il)
        q, k, _ = super().normalize_heads(g, QKV(q, k, qkv.v), il)
        return q, k


class ScaledAttention(Attention):
    """Queries are scaled, not their products with keys."""

    parts_keep = KVCacheSpec

    def scores(self, g: GraphBuilder, il: int) -> Scores:
        return Scores(1.0, self.sinks)

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        q, k = super().place(g, qkv, il)
        return g.cb(scale(q, self.kq_scale), "Qcur_scaled", il), k

"""softmax(q k) v for every head, by one op or by its parts (llama-graph.cpp:build_attn_mha)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ggml_py.ops import (
    add,
    cast,
    cont,
    flash_attn_ext,
    mul_mat,
    permute,
    reshape,
    scale,
    soft_max_ext,
    tanh,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams


@dataclass(frozen=True, slots=True)
class Scores:
    """Parameters that convert products of queries and keys to attention weights.

    kq_scale  factor of the products
    sinks     F32 [n_head] an additional score per head without a value
    bias      F32 [n_kv, n_tokens, n_head, n_stream] added to the products
    v_mla     [d_v, d_mla, n_head] unpacks the values
    n_kv_max  maximum number of visible cells; 0: unknown
    cap       (a, b): products x become b * tanh(a * x), without flash attention
    """

    kq_scale: float
    sinks: Tensor | None = None
    bias: Tensor | None = None
    v_mla: Tensor | None = None
    n_kv_max: int = 0
    cap: tuple[float, float] | None = None


def mha(
    g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, il: int, how: Scores
) -> Tensor:
    """Compute softmax(kq_scale * q k + bias + mask) v for every head, and join the heads.

    q [d, n_head, n_tokens], k [d, n_head_kv, n_kv, n_stream], v likewise (or transposed, the
    cache's layout without flash attention) -> [d_v * n_head, n_tokens]
    """
    v_trans = v.nb[1] > v.nb[2] or v.ne[2] < k.ne[2]  # values of one dimension
    n_stream = k.ne[3]
    n_tokens = q.ne[2] // n_stream
    strides = (q.nb[1] // q.nb[0], q.nb[2] // q.nb[0], q.nb[2] // q.nb[0] * n_tokens)
    q = view(q, (*q.ne[:2], n_tokens, n_stream), strides)
    q, k, v = (permute(t, 0, 2, 1, 3) for t in (q, k, v))
    first = len(g.gf.nodes)
    if g.cparams.flash_attn and how.bias is None:
        cur = g.expand(_flash(g, q, k, transpose(v) if v_trans else v, mask, il, how))
    else:
        cur = g.expand(_soft_max(g, q, k, v, mask, il, how, v_trans))
    if not g.cparams.offload_kqv:
        g.res.of_host_keys.update(map(id, g.gf.nodes[first:]))
    return cur


def _flash(
    g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, il: int, how: Scores
) -> Tensor:
    hp = g.hp
    k, v = (cast(t, F16) if t.type is F32 else t for t in (k, v))
    cur = attended = flash_attn_ext(
        q,
        k,
        v,
        mask,
        how.kq_scale,
        hp.max_alibi_bias,
        hp.attn_logit_softcap,
        how.sinks,
        "f32",
        how.n_kv_max,
    )
    g.mark_fused("flash_attn", cur)
    g.res.attention[il] = attended, partial(_weights, how.kq_scale, hp)
    if how.v_mla is not None:
        cur = mul_mat(how.v_mla, permute(cur, 0, 2, 1, 3))
        cur = cont(permute(g.cb(cur, "fattn_mla", il), 0, 2, 1, 3))
    return reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])


def _soft_max(
    g: GraphBuilder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    il: int,
    how: Scores,
    v_trans: bool,
) -> Tensor:
    hp = g.hp
    kq = g.cb(mul_mat(k, q, "f32"), "kq", il)  # [n_kv, n_tokens, n_head, n_stream]
    if how.cap is not None:
        kq = g.cb(tanh(scale(kq, how.cap[0])), "kq_tanh", il)
        kq = g.cb(scale(kq, how.cap[1]), "kq_scaled", il)
    if cap := hp.attn_logit_softcap:
        kq = g.cb(scale(kq, 1.0 / cap), "kq_scaled_1", il)
        kq = g.cb(tanh(kq), "kq_tanh", il)
        kq = g.cb(scale(kq, cap), "kq_scaled_2", il)
    if how.bias is not None:
        kq = g.cb(add(kq, how.bias), "kq_plus_kq_b", il)
    kq = soft_max_ext(kq, mask, how.kq_scale, hp.max_alibi_bias, how.sinks)
    g.cb(kq, "kq_soft_max", il)
    if not v_trans:
        v = g.cb(cont(transpose(v)), "v_cont", il)
    kqv = g.cb(mul_mat(v, kq), "kqv", il)  # [d_v, n_tokens, n_head, n_stream]
    if how.v_mla is not None:
        kqv = g.cb(mul_mat(how.v_mla, kqv), "kqv_mla", il)
    cur = permute(kqv, 0, 2, 1, 3)
    cur = cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
    if not g.cparams.offload_kqv:
        g.res.on_host.append(cur)
    return cur


def _weights(kq_scale: float, hp: HParams, sources: Sequence[Tensor]) -> Tensor:
    """Recompute the weights that flash attention does not store, from its sources.
    -> [n_kv, n_tokens, n_head, n_stream]
    """
    q, k, _, mask = sources[:4]
    kq = mul_mat(k, q, "f32")
    if cap := hp.attn_logit_softcap:
        kq, kq_scale = scale(tanh(scale(kq, kq_scale / cap)), cap), 1.0
    if mask.ne[0] != kq.ne[0]:
        mask = cont(view(mask, (kq.ne[0], *mask.ne[1:])))
    sinks = sources[4] if len(sources) > 4 else None
    return soft_max_ext(kq, mask, kq_scale, hp.max_alibi_bias, sinks)

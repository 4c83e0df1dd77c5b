"""Softmax, fused attention, and the indexer that scores keys for sparse attention."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32

PREC = {"default": 0, "f32": 10}


@op("SOFT_MAX", "scale:f max_bias:f", inplace=True)
def soft_max_ext(
    a: Tensor,
    mask: Tensor | None,
    scale: float,
    max_bias: float,
    sinks: Tensor | None = None,
    inplace: bool = False,
) -> Tensor:
    """softmax(scale * a + slope * mask) along dimension 0 (ggml.c:ggml_soft_max_ext).

    a [n_kv, T, H, B]; mask F16|F32 [n_kv, >= T, divides H, divides B] or None; max_bias > 0: ALiBi
    slopes per head; sinks F32 [H]: one more score per head that joins the maximum and the sum only.
    """
    require(a.is_contiguous(), "soft_max: a must be contiguous", a)
    if mask is not None:
        fits = mask.ne[0] == a.ne[0] and mask.ne[1] >= a.ne[1] and _repeats(mask, a)
        require(
            fits, "soft_max: mask must be [a.ne0, >= a.ne1, divides a.ne2, divides a.ne3]", a, mask
        )
        require(
            mask.type in (F16, F32) and mask.is_contiguous(),
            "soft_max: mask must be contiguous f16 or f32",
            mask,
        )
    require(max_bias <= 0 or mask is not None, "soft_max: ALiBi (max_bias > 0) needs a mask", a)
    _check_sinks(a, sinks)
    src = (a, mask) if sinks is None else (a, mask, sinks)
    if inplace:
        return view_result("SOFT_MAX", a, *src, params=(scale, max_bias))
    return node("SOFT_MAX", a.type, a.ne, *src, params=(scale, max_bias))


def soft_max(a: Tensor) -> Tensor:
    """softmax along dimension 0 (ggml.c:ggml_soft_max)."""
    return soft_max_ext(a, None, 1.0, 0.0)


def _flops(t: Tensor) -> float:
    """Return the FLOPs of the products of queries with keys, and of weights with values."""
    q, k = t.sources(2)
    return 2.0 * (q.n_elements + t.n_elements) * k.ne[1]


@op(
    "FLASH_ATTN_EXT",
    "scale:f max_bias:f softcap:f prec:i n_kv_max:i",
    at_weights=False,
    flops=_flops,
    rounds=(1, 0),
)
def flash_attn_ext(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    max_bias: float = 0.0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    prec: str = "default",
    n_kv_max: int = 0,
) -> Tensor:
    """softmax(scale * q k + slope * mask) v without the score matrix (ggml.c:ggml_flash_attn_ext).

    q [d, T, H, B], k [d, n_kv, H_kv, B], v [d_v, n_kv, H_kv, B], mask F16 [n_kv, >= T, divides H,
    divides B]
    -> F32 [d_v, H, T, B]; softcap > 0: scores become softcap * tanh(score / softcap) before the
    mask; n_kv_max > 0: no token sees more cells than these (ggml_flash_attn_ext_set_n_kv_max).
    """
    fits = (
        q.ne[0] == k.ne[0]
        and k.ne[2] > 0
        and q.ne[2] % k.ne[2] == 0
        and q.ne[3] == k.ne[3] == v.ne[3]
    )
    require(
        fits,
        "flash_attn_ext: q and k must have the same head size and batch, and H_kv must divide H",
        q,
        k,
        v,
    )
    require(
        k.ne[1] == v.ne[1] and k.ne[2] == v.ne[2],
        "flash_attn_ext: k and v must have the same cells and heads",
        k,
        v,
    )
    if mask is not None:
        require(
            mask.type is F16 and mask.is_contiguous(),
            "flash_attn_ext: mask must be contiguous f16",
            mask,
        )
        fits = mask.ne[0] >= k.ne[1] and mask.ne[1] >= q.ne[1] and _repeats(mask, q)
        require(fits, "flash_attn_ext: mask must be [n_kv, >= T, divides H, divides B]", q, k, mask)
    require(
        max_bias <= 0 or mask is not None, "flash_attn_ext: ALiBi (max_bias > 0) needs a mask", q
    )
    _check_sinks(q, sinks)
    src = (q, k, v, mask) if sinks is None else (q, k, v, mask, sinks)
    ne = (v.ne[0], q.ne[2], q.ne[1], q.ne[3])
    params = (scale, max_bias, softcap, PREC[prec], n_kv_max)
    return node("FLASH_ATTN_EXT", F32, ne, *src, params=params)


@op("LIGHTNING_INDEXER")
def lightning_indexer(q: Tensor, k: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """score[j, t] = mask[j, t] + sum_h weights[h, t] * max(0, <q[h, t], k[j]>)
    (ggml.c:ggml_lightning_indexer).

    q F32 [d, H, T, B], k [d, 1, n_kv, B] of any type, weights F32 [H, T, 1, B], mask F16
    [n_kv, T, 1, B or a divisor of it] -> F32 [n_kv, T, 1, B]
    """
    require(
        q.type is F32 and weights.type is F32 and mask.type is F16,
        "lightning_indexer: q and weights must be f32, mask f16",
        q,
        weights,
        mask,
    )
    n_head, n_tokens, n_seqs = q.ne[1:]
    require(
        k.ne[:2] == (q.ne[0], 1) and k.ne[3] == n_seqs,
        "lightning_indexer: k must be [d, 1, n_kv, B]",
        q,
        k,
    )
    require(
        weights.ne == (n_head, n_tokens, 1, n_seqs),
        "lightning_indexer: weights must be [H, T, 1, B]",
        q,
        weights,
    )
    fits = mask.ne[:3] == (k.ne[2], n_tokens, 1) and mask.ne[3] > 0 and n_seqs % mask.ne[3] == 0
    require(fits, "lightning_indexer: mask must be [n_kv, T, 1, a divisor of B]", k, mask)
    return node("LIGHTNING_INDEXER", F32, (k.ne[2], n_tokens, 1, n_seqs), q, k, weights, mask)


def _repeats(mask: Tensor, a: Tensor) -> bool:
    return a.ne[2] % mask.ne[2] == 0 and a.ne[3] % mask.ne[3] == 0


def _check_sinks(a: Tensor, sinks: Tensor | None) -> None:
    if sinks is not None:
        require(
            sinks.type is F32 and sinks.ne[0] == a.ne[2],
            "attention sinks must be f32, one per head",
            a,
            sinks,
        )

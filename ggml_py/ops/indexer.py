"""Scoring of keys that decides which of them attention looks at."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32


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

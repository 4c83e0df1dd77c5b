"""Cases of ggml_py/ops/attention.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, uniform

Shape = tuple[int, ...]
BF16, Q8_0, Q4_0 = BY_NAME["bf16"], BY_NAME["q8_0"], BY_NAME["q4_0"]


def kq_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random biases, blocks of -inf; no token is left without a cell to see."""
    mask = rng.uniform(-1, 1, shape)
    blocks = rng.random((*shape[:2], -(-shape[2] // 4), -(-shape[3] // 16))) < 0.3
    hidden = blocks.repeat(4, axis=2).repeat(16, axis=3)[:, :, : shape[2], : shape[3]]
    hidden[..., rng.integers(shape[3])] = False
    return np.where(hidden, -np.inf, mask)


def causal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The last tokens of a context: each sees the cells up to its own."""
    n_tokens, n_kv = shape[-2:]
    seen = np.arange(n_kv) <= np.arange(n_tokens)[:, None] + max(n_kv - n_tokens, 0)
    return np.broadcast_to(np.where(seen, 0, -np.inf), shape)


@case("SOFT_MAX", max_nmse=1e-6, ne=[(n, 5, 4, 3) for n in (1, 3, 16, 33, 65, 257)], mask=[False],
      scale=[1.0, 0.1])  # fmt: skip
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3), (64, 3, 4, 1)], mask=[True], m_prec=[F32, F16],
      nr23=[(1, 1), (2, 1), (4, 1)], scale=[1.0, 0.1], max_bias=[0.0, 8.0])  # fmt: skip
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3)], mask=[False, True], sinks=[True],
      scale=[1.0, 0.1])  # fmt: skip
@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 4, 3)], mask=[True], nr23=[(1, 3), (2, 3)],
      max_bias=[0.0])  # fmt: skip
@case("SOFT_MAX", max_nmse=1e-6, ne=[(33, 3, 12, 1)], mask=[True], max_bias=[8.0])
@case("SOFT_MAX", max_nmse=1e-6, ne=[(65, 0, 2, 1)], mask=[False])
@case("SOFT_MAX", perf=True, ne=[(4096, 512, 8, 1)], mask=[True], m_prec=[F32])
def soft_max(
    new: Leaves, ne: Shape, mask: bool, m_prec: GGMLType = F32, nr23: Shape = (1, 1),
    scale: float = 1.0, max_bias: float = 0.0, sinks: bool = False,
) -> Tensor:  # fmt: skip
    a = new(ne, F32, uniform(-10, 10))
    m = new((ne[0], ne[1], ne[2] // nr23[0], ne[3] // nr23[1]), m_prec, kq_mask) if mask else None
    s = new((ne[2],), F32, uniform(-10, 10)) if sinks else None
    return ops.soft_max_ext(a, m, scale, max_bias, s)


@case("SOFT_MAX", max_nmse=1e-6, ne=[(17, 5, 2, 1)], mask_rows=[8])
def soft_max_padded_mask(new: Leaves, ne: Shape, mask_rows: int) -> Tensor:
    """The mask may have more rows than there are tokens."""
    mask = new((ne[0], mask_rows, 1, 1), F32, kq_mask)
    return ops.soft_max_ext(new(ne), mask, 1.0, 0.0)


def _heads(
    new: Leaves, d: int, n: int, n_head: int, n_seqs: int, type: GGMLType, layout: str
) -> Tensor:
    """[d, n, n_head, n_seqs], in memory by head, by token, or a window of a larger cache."""
    ne = (d, n, n_head, n_seqs)
    if layout == "cache":
        cache = new((d * n_head, n + 3, n_seqs), type)
        row = type.row_size(d)
        return ops.view_4d(cache, *ne, cache.nb[1], row, cache.nb[2], 0)
    return new.permuted(ne, (0, 2, 1, 3), type) if layout == "tokens" else new(ne, type)


ONE: Shape = (1, 1)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[64], nh=[2], nr23=[ONE, (4, 1), (1, 3)],
      kv=[1, 33, 113, 512], nb=[1, 3, 33], mask=[True])  # fmt: skip
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[32, 40, 80, 128, 256], hsv=[0], nh=[2], nr23=[(2, 1)],
      kv=[65], nb=[1, 9], mask=[False, True])  # fmt: skip
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[192, 576], hsv=[128, 512], nh=[1], nr23=[(4, 1)],
      kv=[65], nb=[1, 3], mask=[True])  # fmt: skip
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[113],
      nb=[1, 5], mask=[True], sinks=[False, True], max_bias=[0.0, 8.0],
      logit_softcap=[0.0, 10.0])  # fmt: skip
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[128], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[96],
      nb=[1, 7], mask=[True], type_K=[F32, BF16, Q8_0, Q4_0])  # fmt: skip
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[100],
      nb=[1, 7], mask=[True], layout=["cache", "tokens"])  # fmt: skip
@case("FLASH_ATTN_EXT", perf=True, hsk=[128], hsv=[0], nh=[8], nr23=[(4, 1)], kv=[4096],
      nb=[1, 512], mask=[True])  # fmt: skip
def flash_attn_ext(
    new: Leaves, hsk: int, hsv: int, nh: int, nr23: Shape, kv: int, nb: int, mask: bool,
    sinks: bool = False, max_bias: float = 0.0, logit_softcap: float = 0.0, type_K: GGMLType = F16,
    layout: str = "heads",
) -> Tensor:  # fmt: skip
    """nh key heads, nh * nr23[0] query heads, nr23[1] sequences; hsv 0: as hsk."""
    q_layout = "tokens" if layout != "heads" else "heads"
    n_head, n_seqs = nh * nr23[0], nr23[1]
    q = _heads(new, hsk, nb, n_head, n_seqs, F32, q_layout)
    k = _heads(new, hsk, kv, nh, n_seqs, type_K, layout)
    v = _heads(new, hsv or hsk, kv, nh, n_seqs, type_K, layout)
    m = new((kv, nb, 1, n_seqs), F16, kq_mask) if mask else None
    s = new((n_head,), F32, uniform(-10, 10)) if sinks else None
    return ops.flash_attn_ext(q, k, v, m, 1 / hsk**0.5, max_bias, logit_softcap, s, prec="f32")


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[64, 200], nb=[1, 5, 64], rows=[64], mask_kind=["causal"])
def flash_attn_causal(new: Leaves, kv: int, nb: int, rows: int, mask_kind: str) -> Tensor:
    """A causal mask with rows to spare, as the cache makes it."""
    q = new.permuted((64, nb, 4, 1), (0, 2, 1, 3))
    k, v = (new.permuted((64, kv, 2, 1), (0, 2, 1, 3), F16) for _ in "kv")
    return ops.flash_attn_ext(q, k, v, new((kv, rows), F16, causal), 0.125)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[33], nb=[3], hidden=["all"])
def flash_attn_blind(new: Leaves, kv: int, nb: int, hidden: str) -> Tensor:
    """A token that sees no cell gets zeros."""

    def init(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        mask = np.zeros(shape)
        mask[..., 1, :] = -np.inf
        return mask

    q, k, v = new((64, nb, 2)), new((64, kv, 2), F16), new((64, kv, 2), F16)
    return ops.flash_attn_ext(q, k, v, new((kv, nb), F16, init), 0.125)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[33, 300], nb=[1, 5, 40], type_K=[F16, F32],
      hidden=["nan"])  # fmt: skip
def flash_attn_hidden_nan(
    new: Leaves, kv: int, nb: int, type_K: GGMLType, hidden: str
) -> Tensor:
    """What a hidden cell holds does not matter; the token that does see one gets NaN."""

    def cells(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        x = rng.uniform(-1, 1, shape)
        x[..., 1::3, :] = np.nan
        return x

    def mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        x = rng.uniform(-1, 1, shape)
        x[..., 1::3] = -np.inf
        x[..., 2:3, 1] = 0
        return x

    q = new((64, nb, 4))
    k, v = (new((64, kv, 2), type_K, cells) for _ in "kv")
    return ops.flash_attn_ext(q, k, v, new((kv, nb), F16, mask), 0.125)

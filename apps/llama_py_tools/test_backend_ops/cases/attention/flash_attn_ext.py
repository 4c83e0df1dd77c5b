"""Cases of FLASH_ATTN_EXT (ggml_py/ops/attention.py)."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, uniform

Shape = tuple[int, ...]
BF16, Q8_0, Q4_0 = BY_NAME["bf16"], BY_NAME["q8_0"], BY_NAME["q4_0"]
CACHED = [F32, F16, BF16, Q8_0, Q4_0, *(BY_NAME[n] for n in ("q4_1", "q5_0", "q5_1", "iq4_nl"))]


def kq_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random biases with blocks of -inf; each token sees at least one cell."""
    mask = rng.uniform(-1, 1, shape)
    blocks = rng.random((*shape[:2], -(-shape[2] // 4), -(-shape[3] // 16))) < 0.3
    hidden = blocks.repeat(4, axis=2).repeat(16, axis=3)[:, :, : shape[2], : shape[3]]
    hidden[..., rng.integers(shape[3])] = False
    return np.where(hidden, -np.inf, mask)


def causal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return a causal mask of the last tokens of a context."""
    n_tokens, n_kv = shape[-2:]
    seen = np.arange(n_kv) <= np.arange(n_tokens)[:, None] + max(n_kv - n_tokens, 0)
    return np.broadcast_to(np.where(seen, 0, -np.inf), shape)


def _heads(
    new: Leaves, d: int, n: int, n_head: int, n_seqs: int, type: GGMLType, layout: str
) -> Tensor:
    """Add heads [d, n, n_head, n_seqs], stored by head, by token, or as a window of a larger cache.
    A window can be of all heads, each head, each sequence, or the longer rows of each cell.
    """
    ne = (d, n, n_head, n_seqs)
    if layout == "window":
        return new.second_half(ne, 1, type)
    if layout == "sequences":
        return new.second_half(ne, 2, type)
    if layout == "rows":
        return ops.permute(new.second_half((d, n_head, n, n_seqs), 1, type), 0, 2, 1, 3)
    if layout == "cache":
        cache = new((d * n_head, n + 3, n_seqs), type)
        row = type.row_size(d)
        return ops.view_4d(cache, *ne, cache.nb[1], row, cache.nb[2], 0)
    return new.permuted_view(ne, (0, 2, 1, 3), type) if layout == "tokens" else new(ne, type)


ONE: Shape = (1, 1)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[64], nh=[2], nr23=[ONE, (4, 1), (1, 3)],
      kv=[1, 33, 113, 512], nb=[1, 3, 33], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[32, 40, 80, 128, 256], hsv=[0], nh=[2], nr23=[(2, 1)],
      kv=[65], nb=[1, 9], mask=[False, True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[192, 576], hsv=[128, 512], nh=[1], nr23=[(4, 1)],
      kv=[65], nb=[1, 3], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[113],
      nb=[1, 5], mask=[True], sinks=[False, True], max_bias=[0.0, 8.0],
      logit_softcap=[0.0, 10.0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[128], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[96],
      nb=[1, 7], mask=[True], type_K=[F32, BF16, Q8_0, Q4_0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[100],
      nb=[1, 7], mask=[True], layout=["cache", "tokens"])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64, 72], hsv=[0], nh=[2], nr23=[(4, 1), (1, 3)],
      kv=[113], nb=[1, 35], mask=[True], type_K=[F16],
      layout=["window", "rows", "sequences"])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[113],
      nb=[1, 35], mask=[True], type_K=CACHED, layout=["heads", "window", "rows"])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[0], nh=[2], nr23=[(2, 1)], kv=[113],
      nb=[1, 3], mask=[False, True], sinks=[False, True], type_K=CACHED)
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[40, 72, 80, 96, 192, 320, 512], hsv=[0], nh=[2],
      nr23=[(1, 1), (4, 1)], kv=[65], nb=[1, 33], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[96, 72, 128], hsv=[64], nh=[2], nr23=[(1, 1)],
      kv=[129], nb=[2, 32], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64], hsv=[72, 128], nh=[2], nr23=[(1, 1)], kv=[129],
      nb=[2, 32], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[65], hsv=[67], nh=[4], nr23=[(1, 1)], kv=[17, 113],
      nb=[1, 75], mask=[False, True], sinks=[False, True],
      logit_softcap=[0.0, 1.0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[320], hsv=[256], nh=[1], nr23=[(32, 1)], kv=[65],
      nb=[1, 3], mask=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[128], hsv=[0], nh=[2], nr23=[(12, 1), (16, 2)],
      kv=[130], nb=[1, 32], mask=[True], sinks=[False, True], max_bias=[0.0, 8.0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[128], hsv=[0], nh=[2], nr23=[(4, 1)], kv=[1024],
      nb=[1, 64], mask=[False, True], logit_softcap=[0.0, 30.0],
      prec=["default", "f32"])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64, 256], hsv=[0], nh=[1], nr23=[(4, 1), (6, 1)],
      kv=[1025], nb=[1, 32, 75], mask=[True], type_K=[F16, Q8_0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[128], hsv=[0], nh=[1], nr23=[(4, 1)], kv=[16384],
      nb=[1], mask=[True], type_K=[F16, Q8_0])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[32], hsv=[0], nh=[1], nr23=[(2, 1)], kv=[1024],
      nb=[512], mask=[True])
@case("FLASH_ATTN_EXT", perf=True, hsk=[128], hsv=[0], nh=[8], nr23=[(4, 1)], kv=[4096],
      nb=[1, 512], mask=[True])
def flash_attn_ext(
    new: Leaves, hsk: int, hsv: int, nh: int, nr23: Shape, kv: int, nb: int, mask: bool,
    sinks: bool = False, max_bias: float = 0.0, logit_softcap: float = 0.0, type_K: GGMLType = F16,
    layout: str = "heads", prec: str = "f32",
) -> Tensor:
    """Build attention of nh key heads, nh * nr23[0] query heads, nr23[1] sequences; hsv 0: hsk."""
    q_layout = "tokens" if layout != "heads" else "heads"
    n_head, n_seqs = nh * nr23[0], nr23[1]
    q = _heads(new, hsk, nb, n_head, n_seqs, F32, q_layout)
    k = _heads(new, hsk, kv, nh, n_seqs, type_K, layout)
    v = _heads(new, hsv or hsk, kv, nh, n_seqs, type_K, layout)
    m = new((kv, nb, 1, n_seqs), F16, kq_mask) if mask else None
    s = new((n_head,), F32, uniform(-10, 10)) if sinks else None
    return ops.flash_attn_ext(q, k, v, m, 1 / hsk**0.5, max_bias, logit_softcap, s, prec)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[64, 200], nb=[1, 5, 64], rows=[64], mask_kind=["causal"])
def flash_attn_causal(new: Leaves, kv: int, nb: int, rows: int, mask_kind: str) -> Tensor:
    """Build attention with a causal mask that has spare rows, like the cache's."""
    q = new.permuted_view((64, nb, 4, 1), (0, 2, 1, 3))
    k, v = (new.permuted_view((64, kv, 2, 1), (0, 2, 1, 3), F16) for _ in "kv")
    return ops.flash_attn_ext(q, k, v, new((kv, rows), F16, causal), 0.125)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[33], nb=[3], hidden=["all"])
def flash_attn_blind(new: Leaves, kv: int, nb: int, hidden: str) -> Tensor:
    """Build attention with a token that sees no cell, and gets zeros."""

    def init(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        mask = np.zeros(shape)
        mask[..., 1, :] = -np.inf
        return mask

    q, k, v = new((64, nb, 2)), new((64, kv, 2), F16), new((64, kv, 2), F16)
    return ops.flash_attn_ext(q, k, v, new((kv, nb), F16, init), 0.125)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, kv=[33, 300], nb=[1, 5, 40], type_K=[F16, F32],
      hidden=["nan"])
def flash_attn_hidden_nan(new: Leaves, kv: int, nb: int, type_K: GGMLType, hidden: str) -> Tensor:
    """Build attention with NaN in hidden cells, which has no effect; a token that sees one gets
    NaN."""

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


@case("FLASH_ATTN_EXT", max_nmse=5e-4, types=[("q8_0", "q4_0"), ("q4_0", "f16"), ("q4_0", "q8_0"),
      ("f16", "f32"), ("f16", "q4_0"), ("bf16", "f16")], d=[64], kv=[113], nb=[1, 2, 35],
      mask=[False, True])
def flash_attn_mixed(
    new: Leaves, types: tuple[str, str], d: int, kv: int, nb: int, mask: bool
) -> Tensor:
    """Build attention with keys and values of different types."""
    q = new((d, nb, 4))
    k, v = (new((d, kv, 2), BY_NAME[name]) for name in types)
    return ops.flash_attn_ext(q, k, v, new((kv, nb), F16, kq_mask) if mask else None, d**-0.5)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[576], hsv=[512], nr=[16, 20], kv=[113, 512],
      nb=[1, 3, 32], type_K=[F16, Q8_0], shared=[True])
@case("FLASH_ATTN_EXT", max_nmse=5e-4, hsk=[64, 128], hsv=[64], nr=[1, 4], kv=[113], nb=[1, 8],
      type_K=[F16, Q8_0], shared=[True])
def flash_attn_shared(
    new: Leaves, hsk: int, hsv: int, nr: int, kv: int, nb: int, type_K: GGMLType, shared: bool
) -> Tensor:
    """Build attention whose values are the beginning of the keys, like latent attention."""
    k = new.second_half((hsk, kv, 1), 1, type_K)
    v = ops.view_4d(k, hsv, kv, 1, 1, *k.nb[1:], 0)
    mask = new((kv, nb), F16, kq_mask)
    return ops.flash_attn_ext(new((hsk, nb, nr)), k, v, mask, hsk**-0.5)


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return a mask that lets each token attend to an eighth of the cells."""
    order = rng.random(shape).argsort(-1)
    return np.where(order < max(1, shape[-1] // 8), rng.uniform(-1, 1, shape), -np.inf)


@case("FLASH_ATTN_EXT", max_nmse=5e-4, d=[64, 256], nr=[8, 12], n_seqs=[1, 2], kv=[1024],
      nb=[1, 3, 33], n_kv_max=[128], type_K=[F16, Q8_0], max_bias=[0.0, 8.0])
def flash_attn_sparse(
    new: Leaves, d: int, nr: int, n_seqs: int, kv: int, nb: int, n_kv_max: int, type_K: GGMLType,
    max_bias: float,
) -> Tensor:
    """Build attention with mostly hidden cells, and with n_kv_max set."""
    q = new((d, nb, nr, n_seqs))
    k, v = (new((d, kv, 1, n_seqs), type_K) for _ in "kv")
    mask = new((kv, nb, 1, n_seqs), F16, sparse)
    return ops.flash_attn_ext(q, k, v, mask, d**-0.5, max_bias, n_kv_max=n_kv_max)

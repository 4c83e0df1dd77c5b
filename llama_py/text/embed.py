"""Embeddings of texts: one row per text, or per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ggml_py._moved import former_names
from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch
from llama_py.batch.prompts import Prompt, tokenize_prompt
from llama_py.context import Context
from llama_py.loading.model import LoadedModel

N_SEQ = 32  # maximum number of texts in a batch
N_TOKENS = 2048  # tokens of a batch
INT16 = 32760.0  # largest value with normalize = 0


def embed(
    model: LoadedModel,
    texts: Sequence[Prompt],
    pooling: str = "auto",
    normalize: bool | int = True,
    attention: str = "auto",
) -> F32:
    """Return embeddings F32 [n_texts, n]: n is n_embd, or the number of a reranker's scores.

    pooling    a value of params.POOLING except "none"; "auto": the model's, or else the mean
    normalize  scale rows to length one; or a number, as for `normalize_rows`. Scores are not scaled
    attention  a value of params.ATTENTION; "auto": the model's

    Raises ContextError for a text without tokens.
    """
    if pooling == "auto":
        pooling = "mean" if model.hparams.pooling == "none" else model.hparams.pooling
    if pooling == "none":
        raise ContextError(
            "embed returns one row per string; for one row per token use a context's embd"
        )
    tokens = [tokenize_prompt(model.tokenizer, text) for text in texts]
    if not tokens:
        return np.empty((0, model.hparams.n_embd), np.float32)
    with Context(model, **reading(tokens), pooling=pooling, attention=attention) as ctx:
        found = np.stack([*rows(ctx, tokens)])
    norm = (2 if normalize else -1) if isinstance(normalize, bool) else normalize
    return found if pooling == "rank" else normalize_rows(found, norm)


def reading(tokens: Sequence[Sequence[int]], n_tokens: int = N_TOKENS) -> dict[str, Any]:
    """Return context options for processing these texts, about n_tokens at once."""
    if not all(tokens):
        empty = next(i for i, ids in enumerate(tokens) if not ids)
        raise ContextError(f"text {empty} has no tokens to embed; omit it")
    lengths = [len(ids) for ids in tokens]
    n = min(sum(lengths), max(n_tokens, *lengths))
    sizes = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), n)
    return {**sizes, "n_seq_max": min(N_SEQ, len(tokens)), "kv_unified": True, "embeddings": True}


def rows(ctx: Context, tokens: Sequence[Sequence[int]]) -> Iterator[F32]:
    """Yield the row [n] of each text; without pooling its token rows [n_tokens, n].

    A batch has the maximum number of consecutive texts that fit, of any lengths.
    """
    for group in _groups(tokens, ctx.cparams.n_seq_max, ctx.cparams.n_batch):
        ctx.clear()
        seq_ids = [(s,) for s, ids in enumerate(group) for _ in ids]
        ctx.encode(Batch([id for ids in group for id in ids], seq_ids=seq_ids))
        if ctx.cparams.pooling == "none":
            assert ctx.embd is not None
            yield from np.split(ctx.embd, np.cumsum([len(ids) for ids in group])[:-1])
        else:
            yield from (ctx.embd_seq[s].copy() for s in range(len(group)))


def _groups(
    tokens: Sequence[Sequence[int]], n_seq: int, n_tokens: int
) -> Iterator[list[Sequence[int]]]:
    """Group consecutive texts that fit into one batch."""
    group: list[Sequence[int]] = []
    for ids in tokens:
        if len(group) == n_seq or sum(map(len, group)) + len(ids) > n_tokens:
            yield group
            group = []
        group.append(ids)
    yield group


def normalize_rows(found: F32, norm: int) -> F32:
    """Divide rows by their norm; zero rows are unchanged (common.cpp:common_embd_normalize).

    found  F32 [n_rows, n]
    norm   -1: keep the rows; 0: the largest becomes 32760; 1: sum; 2: length; N: p-norm
    """
    if norm < -1:
        raise ContextError(
            "normalize must be -1 (off), 0 (largest value scaled to 16 bits) or p of the p-norm, "
            f"got {norm}"
        )
    if norm == -1:
        return found
    size = np.linalg.norm(found, norm or np.inf, axis=1, keepdims=True)
    if norm == 0:
        size /= INT16
    return np.asarray(found / np.where(size > 0, size, 1), np.float32)


def similarities(found: F32) -> npt.NDArray[np.float32]:
    """Return cosines between rows [n_rows, n]; zero rows are equal (common_embd_similarity_cos).
    -> [n_rows, n_rows]"""
    x = found.astype(np.float64)
    length = np.linalg.norm(x, axis=1)
    units = np.divide(x, length[:, None], out=np.zeros_like(x), where=length[:, None] > 0)
    both = (length[:, None] == 0) & (length[None, :] == 0)
    return np.where(both, 1.0, units @ units.T).astype(np.float32)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, normalized="normalize_rows")

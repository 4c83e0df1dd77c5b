"""Embeddings of texts: one row for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.loaded import Loaded
from llama_py.prompts import Prompt, ids_of

N_SEQ = 32  # texts that are read at once
N_TOKENS = 2048  # and their tokens together


def embed(
    model: Loaded, texts: Sequence[Prompt], pooling: str = "auto",
    normalize: bool = True,
) -> F32:  # fmt: skip
    """F32 [n_texts, n]: n is n_embd, or the number of a reranker's scores.

    pooling    one of params.POOLING but "none"; "auto": the model's, or else the mean
    normalize  rows are made to have length one; scores never are
    """
    if pooling == "auto":
        pooling = "mean" if model.hparams.pooling == "none" else model.hparams.pooling
    if pooling == "none":
        raise ContextError("embed gives one row a text; for one a token use a context's embd")
    tokens = [ids_of(model.tokenizer, text) for text in texts]
    if not all(tokens):
        raise ContextError(f"text {tokens.index([])} has no tokens, so there is nothing to embed")
    rows: list[F32] = []
    if not tokens:
        return np.empty((0, model.hparams.n_embd), np.float32)
    n_batch = min(sum(map(len, tokens)), max(N_TOKENS, *map(len, tokens)))
    n_seq = min(N_SEQ, len(tokens))
    with Context(
        model, n_ctx=n_batch, n_batch=n_batch, n_ubatch=n_batch, n_seq_max=n_seq, kv_unified=True,
        embeddings=True, pooling=pooling,
    ) as ctx:  # fmt: skip
        for group in _groups(tokens, n_seq, n_batch):
            rows += _rows(ctx, group)
    found = np.stack(rows)
    if normalize and pooling != "rank":
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return found


def _groups(tokens: list[list[int]], n_seq: int, n_tokens: int) -> Iterator[list[list[int]]]:
    """As many neighbours as fit into one batch."""
    group: list[list[int]] = []
    for ids in tokens:
        if len(group) == n_seq or sum(map(len, group)) + len(ids) > n_tokens:
            yield group
            group = []
        group.append(ids)
    yield group


def _rows(ctx: Context, group: list[list[int]]) -> list[F32]:
    ctx.clear()
    seq_ids = [(s,) for s, ids in enumerate(group) for _ in ids]
    ctx.encode(Batch([id for ids in group for id in ids], seq_ids=seq_ids))
    return [ctx.embd_seq[s].copy() for s in range(len(group))]

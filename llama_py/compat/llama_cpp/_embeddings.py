"""Embeddings of tokens, as lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.loading.model import LoadedModel
from llama_py.text.embed import normalize_rows, reading, rows


def embed_texts(
    model: LoadedModel,
    tokens: Sequence[Sequence[int]],
    pooling: str,
    normalize: bool,
    n_most: int,
    truncate: bool,
) -> tuple[list[Any], int]:
    """Return the embedding of each text, and the number of all tokens.

    pooling   a value of `ContextParams.pooling`; without pooling a text has one vector per token
    n_most    maximum number of tokens of a text; truncate: cut longer texts

    Raises ContextError, a ValueError, for a text without tokens, or a longer one.
    """
    too_long = next((len(ids) for ids in tokens if len(ids) > n_most), None)
    if too_long is not None and not truncate:
        raise ContextError(f"Requested tokens ({too_long}) exceed batch size of {n_most}")
    tokens = [ids[:n_most] for ids in tokens]
    if not tokens:
        return [], 0
    with Context(model, **reading(tokens, n_most), pooling=pooling) as ctx:
        by_token = ctx.cparams.pooling == "none"
        found = [row if by_token else row[None] for row in rows(ctx, tokens)]
    if normalize:
        found = [normalize_rows(row, 2) for row in found]
    lists = [row.tolist() if by_token else row[0].tolist() for row in found]
    return lists, sum(map(len, tokens))

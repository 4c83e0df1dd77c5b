"""Embeddings and scores between the steps of responses: a few texts at a time."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter as clock
from typing import Any

import numpy as np

from llama_py.batch import F32
from llama_py.batch.prompts import TooLong
from llama_py.context import Context
from llama_py.loading.model import LoadedModel
from llama_py.params import ContextParams
from llama_py.serving.metrics import Metrics
from llama_py.serving.tasks import Steps
from llama_py.support.resource import Resource
from llama_py.text.embed import N_SEQ, normalize_rows, rows

Texts = Sequence[Sequence[int]]
# Parameters of the main context that contexts for embeddings share.
SHARED_OPTIONS = (
    "n_threads",
    "n_threads_batch",
    "flash_attn",
    "type_k",
    "type_v",
    "offload_kqv",
    "forms",
)


class Reading(Resource):
    """Context for embeddings and reranking, created for the first text.

    n_tokens  maximum tokens of a batch, and of one text
    """

    def __init__(self, model: LoadedModel, p: ContextParams, metrics: Metrics) -> None:
        """Create the reader; p: parameters of the main context; metrics: counters to update."""
        self.model, self._metrics = model, metrics
        self._how = {name: getattr(p, name) for name in SHARED_OPTIONS}
        most = p.n_ctx or model.hparams.n_ctx_train
        self.n_tokens = min(most, max(p.n_ubatch, p.n_batch))
        self._ctx: Context | None = None
        self._kind = ("", "")

    def embed(self, texts: Texts, pooling: str, attention: str, normalize: int) -> Steps:
        """Embed texts like `llama_py.text.embed.embed`; pooling "none" returns token embeddings.
        Each group of texts is one step."""
        if pooling == "auto":
            known = self.model.hparams.pooling
            pooling = "mean" if known == "none" else known
        found: list[F32] = []
        for group in self._groups(texts):
            start = clock()
            found += self._read(group, pooling, attention, normalize)
            self._count(group, clock() - start)
            yield
        return found

    def _read(self, texts: Texts, pooling: str, attention: str, normalize: int) -> list[F32]:
        made = [*rows(self._context(pooling, attention), texts)]
        if pooling == "rank":
            return made
        if pooling == "none":
            return [normalize_rows(one, -1) for one in made]
        return [*normalize_rows(np.stack(made), normalize)]

    def _count(self, texts: Texts, seconds: float) -> None:
        m = self._metrics
        m.n_steps, m.n_busy, m.n_texts = m.n_steps + 1, m.n_busy + 1, m.n_texts + len(texts)
        m.n_prompt, m.prompt_seconds = m.n_prompt + sum(map(len, texts)), m.prompt_seconds + seconds
        m.n_longest = max(m.n_longest, *map(len, texts))

    def _groups(self, texts: Texts) -> list[Texts]:
        """Group consecutive texts that are processed together."""
        groups: list[list[Sequence[int]]] = []
        n = self.n_tokens
        for ids in texts:
            n += len(ids)
            if n > self.n_tokens or len(groups[-1]) == N_SEQ:
                groups.append([])
                n = len(ids)
            groups[-1].append(ids)
        return [*groups]

    def check(self, texts: Texts) -> None:
        """Raise TooLong for a text that does not fit one batch."""
        longest = max(map(len, texts), default=0)
        if longest > self.n_tokens:
            raise TooLong(longest, self.n_tokens)

    def _context(self, pooling: str, attention: str) -> Context:
        kind = (pooling, attention)
        if self._ctx is None or self._kind != kind:
            self.close()
            how: dict[str, Any] = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), self.n_tokens)
            self._ctx = Context(
                self.model,
                **how,
                **self._how,
                n_seq_max=N_SEQ,
                kv_unified=True,
                embeddings=True,
                pooling=pooling,
                attention=attention,
            )
            self._kind = kind
        return self._ctx

    def close(self) -> None:
        if self._ctx is not None:
            self._ctx.close()
            self._ctx = None

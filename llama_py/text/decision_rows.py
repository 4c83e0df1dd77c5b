"""Decisions that are read from rows of embeddings, instead of from logits of labels."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from llama_py.batch import F32, Batch
from llama_py.batch.prompts import TooLong
from llama_py.context import Context
from llama_py.text.decision_types import Question

LEAST_UBATCH = 512


@dataclass(frozen=True, slots=True)
class RowPrompt:
    """A prompt with the options of some questions.

    places   a token of each option; empty: rows are the scores of all options
    marks    of tokens (Batch.marks), if rows are scores
    column   element of a place's row that is the score; None: the row of the prompt's last token is
             compared with each place's
    """

    questions: Sequence[Question]
    tokens: list[int]
    places: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    column: int | None = 0

    def read(self, rows: F32) -> list[list[float]]:
        """Return the scores of each question's options, by the rows of the tokens' embeddings.

        Raises:
            ModelError: The model gives no scores.
        """
        if self.column is None:
            scores = _point(rows, self.places)
        else:
            scores = (rows[self.places] if self.places else rows)[:, self.column].tolist()
        n_options = sum(len(question.options) for question in self.questions)
        if len(scores) < n_options or not all(map(math.isfinite, scores[:n_options])):
            raise ModelError(
                f"a decision needs {n_options} finite scores, got {scores[:n_options]}; check the "
                "model for NaN or overflow"
            )
        each = iter(scores)
        return [[*islice(each, len(question.options))] for question in self.questions]


def _point(rows: F32, ends: Sequence[int]) -> list[float]:
    """Compare the first half of the last row with the second half of options' rows."""
    n = rows.shape[1] // 2
    found: list[float] = (rows[[*ends], n:] @ rows[-1, :n] / np.sqrt(np.float32(n))).tolist()
    return found


class RowScorer:
    """Computes rows of one prompt at a time. Its context grows with the prompts."""

    def __init__(self, create: Callable[..., Context], n_most: int, **options: Any) -> None:
        """Create no context yet.

        Args:
            create: Creates a context with options.
            n_most: Maximum number of tokens of a prompt.
            options: Options of the context, without its sizes.
        """
        self._create, self._n_most, self._options = create, n_most, options
        self._lock = threading.Lock()
        self._context: Context | None = None

    def score(self, prompts: Sequence[RowPrompt]) -> list[list[float]]:
        """Return the scores of the options, by question. TooLong; ModelError like `RowPrompt`."""
        return [one for prompt in prompts for one in prompt.read(self._rows(prompt))]

    def _rows(self, prompt: RowPrompt) -> F32:
        n = len(prompt.tokens)
        if n > self._n_most:
            raise TooLong(n, self._n_most)
        with self._lock:
            ctx = self._grow_context(n)
            ctx.clear()
            return np.array(ctx.encode(Batch(prompt.tokens, marks=prompt.marks or None)))

    def _grow_context(self, n: int) -> Context:
        ctx = self._context
        if ctx is None or ctx.cparams.n_ubatch < n:
            size = min(max(LEAST_UBATCH, 1 << (n - 1).bit_length()), self._n_most)
            sizes: dict[str, Any] = {"n_ctx": size, "n_batch": size, "n_ubatch": size}
            ctx = self._create(**self._options, **sizes, embeddings=True, pooling="none")
            self._context = ctx
        return ctx

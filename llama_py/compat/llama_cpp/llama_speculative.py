"""Draft models with llama-cpp-python's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LlamaDraftModel", "LlamaPromptLookupDecoding"]

Ids = npt.NDArray[np.intc]


class LlamaDraftModel(ABC):
    """Base class of draft models. `Llama` accepts `LlamaPromptLookupDecoding` only."""

    @property
    def options(self) -> dict[str, Any]:
        """The fields of `llama_py.SpeculativeParams` that draft like this model."""
        raise TypeError(
            f"draft_model of class {type(self).__name__} is not supported; use "
            "LlamaPromptLookupDecoding, or the path of a draft model's GGUF file"
        )

    @abstractmethod
    def __call__(self, input_ids: Ids, /, **kwargs: Any) -> Ids:
        """Return a draft of the tokens after `input_ids`."""


class LlamaPromptLookupDecoding(LlamaDraftModel):
    """Drafts from an earlier occurrence of the last tokens (prompt lookup).

    In `Llama`, the method `ngram-simple` drafts: it takes the last occurrence of exactly
    max_ngram_size tokens. A call of this object, like llama-cpp-python's, takes the first
    occurrence of the longest n-gram.
    """

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        """Draft up to num_pred_tokens tokens after n-grams of up to max_ngram_size tokens."""
        self.max_ngram_size, self.num_pred_tokens = max_ngram_size, num_pred_tokens

    @property
    def options(self) -> dict[str, Any]:
        """The fields of `llama_py.SpeculativeParams` that draft like this model."""
        return {
            "spec_type": ("ngram-simple",),
            "spec_ngram_simple_size_n": self.max_ngram_size,
            "spec_ngram_simple_size_m": self.num_pred_tokens,
        }

    @staticmethod
    def find_candidate_pred_tokens(
        input_ids: Ids, max_ngram_size: int, num_pred_tokens: int
    ) -> Ids:
        """Return the tokens after the first occurrence of the longest known n-gram."""
        end = len(input_ids)
        for n in range(min(max_ngram_size, end - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(input_ids[:-1], n)
            found = np.flatnonzero((windows == input_ids[-n:]).all(axis=1))
            if found.size:
                start = int(found[0]) + n
                return input_ids[start : start + num_pred_tokens]
        return np.empty(0, np.intc)

    def __call__(self, input_ids: Ids, /, **kwargs: Any) -> Ids:
        """Return a draft of the tokens after `input_ids`."""
        return self.find_candidate_pred_tokens(input_ids, self.max_ngram_size, self.num_pred_tokens)

"""Biases and penalties of single tokens, in llama-cpp-python's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ggml_py.errors import ModelError
from llama_py.batch import F32
from llama_py.compat.llama_cpp._arguments import ChainOptions
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.penalties import logit_bias, penalties


class LogitChanges:
    """Logits processor that applies biases, then penalties.

    Penalties depend on the tokens after the first call only: llama-cpp-python does not pass the
    prompt to its sampler.
    """

    def __init__(
        self, o: ChainOptions, last_n: int, n_vocab: int, bias: Mapping[int, float]
    ) -> None:
        """Use the options of a response.

        Args:
            o: Penalties.
            last_n: Number of last tokens that penalties apply to.
            n_vocab: Number of tokens in the vocabulary.
            bias: Numbers that are added to logits, by token.

        Raises:
            ModelError: A token is not in the vocabulary.
        """
        for id in bias:
            if not 0 <= id < n_vocab:
                raise ModelError(
                    f"logit_bias: token must be in the vocabulary, 0..{n_vocab - 1}, got {id}"
                )
        self._add = logit_bias(bias)
        self._penalties = penalties(
            last_n, o.repeat_penalty, o.frequency_penalty, o.presence_penalty
        )
        self._n_seen: int | None = None  # tokens

    def __call__(self, ids: Sequence[int], logits: F32) -> F32:
        """Return the logits of the token after `ids`."""
        c = Candidates(np.arange(len(logits)), logits)
        if self._add is not None:
            c = self._add(c)
        if self._penalties is None:
            return c.logits
        for id in ids[len(ids) if self._n_seen is None else self._n_seen :]:
            self._penalties.accept(id, True)
        self._n_seen = len(ids)
        return self._penalties(c).logits

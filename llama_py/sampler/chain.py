"""The sampler: llama.cpp's chain (common/sampling.cpp:common_sampler_init), without DRY."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import ModelError
from llama_py.params import RANDOM_SEED, SamplingParams
from llama_py.sampler.filters import (
    Candidates,
    Filter,
    min_p,
    temperature,
    top_k,
    top_n_sigma,
    top_p,
    typical_p,
    xtc,
)
from llama_py.sampler.penalties import LogitBias, Penalties


class Sampler:
    """Chooses the next token: bias, penalties, filters in llama.cpp's order, then a draw.

    The same seed and logits give the same tokens. `seed` is the one in use, also a random one.
    """

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        """Raises ModelError when `params.logit_bias` names a token outside the vocabulary."""
        for id in params.logit_bias:
            if not 0 <= id < n_vocab:
                raise ModelError(
                    f"logit_bias: token {id} is outside the vocabulary, 0..{n_vocab - 1}"
                )
        self.params, self.n_vocab = params, n_vocab
        self.seed = secrets.randbits(32) if params.seed == RANDOM_SEED else params.seed
        self._rng = np.random.default_rng(self.seed)
        self._ids = np.arange(n_vocab)
        self._bias = LogitBias(params.logit_bias)
        self._penalties = Penalties(
            params.repeat_last_n,
            params.repeat_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        )
        self._chain = self._filters()

    def sample(self, logits: NDArray[np.float32]) -> int:
        """A token for `logits` [n_vocab]; at `temp` <= 0 the most likely, of equals the lowest id.

        Does not remember the token: `accept` does. Raises ModelError for logits of another shape,
        with NaN, or with +inf.
        """
        c = self.candidates(logits)
        if self.params.temp <= 0:
            return int(c.ids[c.logits == c.logits.max()].min())
        cumulated = np.cumsum(c.probabilities())
        drawn = self._rng.random() * cumulated[-1]
        at = int(np.searchsorted(cumulated, drawn, side="right"))
        return int(c.ids[min(at, c.ids.size - 1)])

    def candidates(self, logits: NDArray[np.float32]) -> Candidates:
        """What the chain leaves of `logits` [n_vocab]: the tokens that `sample` draws from."""
        logits = np.asarray(logits, np.float32)
        if logits.shape != (self.n_vocab,):
            raise ModelError(f"logits must have shape ({self.n_vocab},), they have {logits.shape}")
        logits = self._penalties.apply(self._bias.apply(logits))
        if not np.isfinite(logits.max()):
            raise ModelError(
                f"the largest logit is {logits.max()}, so there is nothing to sample from: a "
                f"NaN or overflow in the model, or a bias that forbids every token"
            )
        c = Candidates(self._ids, logits)
        for keep in self._chain:
            c = keep(c)
        return c

    def accept(self, id: int) -> None:
        """Remember a token of the prompt or of the answer, for the penalties."""
        if not 0 <= id < self.n_vocab:
            raise ModelError(f"token {id} is outside the vocabulary, 0..{self.n_vocab - 1}")
        self._penalties.accept(id)

    def reset(self) -> None:
        """Back to the start: no tokens remembered, and the same random numbers again."""
        self._penalties.reset()
        self._rng = np.random.default_rng(self.seed)

    def clone(self) -> Sampler:
        """A sampler in the same state that goes its own way from here."""
        other = Sampler(self.params, self.n_vocab)
        other.seed = self.seed
        other._rng.bit_generator.state = self._rng.bit_generator.state
        other._penalties = self._penalties.copy()
        return other

    def _filters(self) -> list[Filter]:
        p = self.params
        greedy = p.temp <= 0
        surprising = [typical_p(p.typical_p), xtc(p.xtc_probability, p.xtc_threshold, self._random)]
        if greedy and not any(surprising):
            return []  # the other filters keep the most likely token
        chain = [
            top_n_sigma(p.top_n_sigma),
            top_k(p.top_k),
            surprising[0],
            top_p(p.top_p),
            min_p(p.min_p),
            surprising[1],
            None if greedy else temperature(p.temp),
        ]
        return [keep for keep in chain if keep]

    def _random(self) -> float:
        return self._rng.random()

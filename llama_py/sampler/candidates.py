"""Candidates for the next token, and the interface of sampler stages."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ggml_py._moved import Former
from ggml_py.errors import ModelError
from llama_py.sampler.mt19937 import Mt19937

F32: TypeAlias = NDArray[np.float32]
Index: TypeAlias = NDArray[np.intp]
S = TypeVar("S", bound="SamplerStage")

_BLOCK = 256  # few block maxima, which still give a good bound


class Candidates(NamedTuple):
    """Possible next tokens (llama_token_data_array): `ids` and their `logits`, both [n].

    Logits may be -inf. If `sorted`, the largest are first; otherwise the order is undefined.
    """

    ids: Index
    logits: F32
    sorted: bool = False

    def take(self, which: Index | NDArray[np.bool_] | slice, sorted: bool = False) -> Candidates:
        return Candidates(self.ids[which], self.logits[which], sorted)

    def max(self) -> np.float32:
        """Return the largest logit."""
        largest: np.float32 = self.logits[0] if self.sorted else self.logits.max()
        return largest

    def top_k(self, k: int) -> Candidates:
        """Return the k most likely candidates, sorted; equal logits keep their order."""
        if self.sorted:
            return self.take(slice(k), True)
        return self.take(top_indices(self.logits, k), True)

    def sort(self) -> Candidates:
        return self.top_k(self.ids.size)

    def probabilities(self) -> F32:
        """Return softmax(logits) [n], summed sequentially in 32 bits like llama.cpp: with many
        equal candidates, the rounding determines the last candidate that counts."""
        with np.errstate(over="ignore"):
            weights: F32 = np.exp(self.logits - self.max())
        weights /= np.cumsum(weights)[-1]
        return weights

    def replace_logits(self, at: Index, logits: F32) -> Candidates:
        """Return a copy with `logits` at indices `at`, clamped if finite."""
        most = np.finfo(np.float32).max
        made = self.logits.copy()
        made[at] = np.where(made[at] > -np.inf, np.clip(logits, -most, most), made[at])
        return Candidates(self.ids, made)

    def places(self, ids: Index) -> tuple[Index, Index]:
        """Find tokens that occur at most once: indices into the candidates, and into `ids`."""
        at = np.minimum(ids, self.ids.size - 1)
        if np.array_equal(self.ids[at], ids):  # the whole vocabulary, in order
            return at, np.arange(ids.size)
        order = np.argsort(ids)
        found = np.searchsorted(ids, self.ids, sorter=order)
        which = order[np.minimum(found, ids.size - 1)]
        at = np.flatnonzero(ids[which] == self.ids)
        return at, which[at]


Filter: TypeAlias = Callable[[Candidates], Candidates]


class SamplerStage(ABC):
    """A stage of the chain with state; stages without state are plain functions.

    Sampling changes random numbers only; all other state changes in `accept`. State that changes
    in place is a deque or a Mt19937.
    """

    @abstractmethod
    def __call__(self, c: Candidates) -> Candidates: ...

    def accept(self, id: int, drawn: bool) -> None:  # noqa: B027
        """Note a token of the text; `drawn`: it was sampled last."""

    def reset(self) -> None:  # noqa: B027
        """Reset to the initial state."""

    def copy(self: S) -> S:
        """Return an independent copy in the same state."""
        other = copy.copy(self)
        own = {k: v.copy() for k, v in vars(self).items() if isinstance(v, (deque, Mt19937))}
        vars(other).update(own)
        return other


def top_indices(values: F32, k: int) -> Index:
    """Return the indices of the k largest values in descending order; equal values in index order.

    The k-th largest block maximum is a lower bound of the k-th largest value, so after one pass
    only a few values must be sorted (40 of 248,320: 0.15 ms; np.argpartition takes 2 ms).
    """
    if k >= values.size:
        return np.argsort(-values, kind="stable")
    rest = values
    n_blocks = values.size // _BLOCK
    if n_blocks > k:
        rest = values[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1)
    bound = np.partition(rest, rest.size - k)[rest.size - k]
    few = bound == -np.inf  # a grammar allows few: the others need no order
    found = np.flatnonzero(values > bound if few else values >= bound)
    best = found[np.argsort(-values[found], kind="stable")[:k]]
    if not few or best.size == k:
        return best
    others = np.flatnonzero(values[: k + found.size] == bound)[: k - best.size]
    return np.concatenate([best, others])


def check(largest: np.float32) -> None:
    """Raise ModelError unless the largest logit is finite."""
    if not isfinite(largest):
        raise ModelError(
            f"no token can be sampled: the largest logit is {largest}; check the model for NaN "
            "or overflow, and biases or constraints that exclude every token"
        )


def f32(value: float) -> np.float32:
    """Return the nearest finite 32-bit number."""
    most = float(np.finfo(np.float32).max)
    return np.float32(min(max(value, -most), most))


if not TYPE_CHECKING:  # a NamedTuple has no other attributes than its fields, for type checkers
    for former, name in (("best", "top_k"), ("changed", "replace_logits")):
        setattr(Candidates, former, Former(name))
        vars(Candidates)[former].__set_name__(Candidates, former)

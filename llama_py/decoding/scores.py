"""Log probabilities of given tokens, computed for several sequences in one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from llama_py.batch import F32

if TYPE_CHECKING:
    from llama_py.decoding.sequences import Sequences

N_LOGITS = 1 << 24  # logits of a batch with all logits: 64 MiB
Top = tuple[tuple[int, float], ...]


class Score(NamedTuple):
    """A token of a text, its log probability, and the most likely tokens with theirs."""

    token: int
    logprob: float | None
    top: Top


def score_pending(
    sequences: Sequences, wanted: Mapping[int, int], n_top: Mapping[int, int | None]
) -> dict[int, tuple[Score, ...]]:
    """Compute pending tokens of sequences in one batch, and score the tokens after them.

    Args:
        sequences: Sequences with pending tokens.
        wanted: Maximum number of tokens to compute, by sequence. Each must have one more.
        n_top: Number of most likely tokens to return, by sequence.

    Returns:
        Scores of a sequence's pending tokens after the first, one per computed token. A batch has
        fewer tokens than wanted if it is full, or if a checkpoint is due.
    """
    following = {id: sequences.pending(id)[1 : n + 1] for id, n in wanted.items()}
    rows = sequences.read(wanted)
    return {id: score_tokens(rows[id], following[id], n_top[id]) for id in rows}


def score_tokens(rows: F32, ids: Sequence[int], n_top: int | None) -> tuple[Score, ...]:
    """Score a token by each row of logits [n, n_vocab]; surplus ids are ignored."""
    return tuple(
        Score(id, *token_logprobs(row, id, n_top)) for row, id in zip(rows, ids, strict=False)
    )


def score_alternatives(row: F32, ids: Sequence[int], n_top: int | None) -> tuple[Score, ...]:
    """Score several tokens by one row of logits [n_vocab]."""
    if n_top is None:
        return tuple(Score(id, None, ()) for id in ids)
    log_sum = _log_sum(row)
    top = tuple((int(i), float(row[i]) - log_sum) for i in _most_likely(row, n_top))
    return tuple(Score(id, float(row[id]) - log_sum, top) for id in ids)


def token_logprobs(logits: F32, id: int, n: int | None) -> tuple[float | None, Top]:
    """Return the log probabilities of a token and of the n most likely tokens; None: skip."""
    (found,) = score_alternatives(logits, [id], n)
    return found.logprob, found.top


def max_rows(n_vocab: int) -> int:
    """Return how many tokens a batch with all logits may have."""
    return N_LOGITS // n_vocab + 1


def _log_sum(row: F32) -> float:
    """Return the logarithm of the sum of exponentials: float32 terms, a float64 sum."""
    largest = row.max()
    return float(largest) + float(np.log(np.exp(row - largest).sum(dtype=np.float64)))


def _most_likely(row: F32, n: int) -> npt.NDArray[np.int64]:
    """Return the indices of the n largest values in order; equal values by index."""
    least = np.partition(row, -n)[-n] if 0 < n < row.size else -np.inf
    likely = np.flatnonzero(row >= least) if n else np.empty(0, np.int64)
    return likely[np.argsort(-row[likely], kind="stable")[:n]]

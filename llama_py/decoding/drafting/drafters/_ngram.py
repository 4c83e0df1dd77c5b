"""Search for tokens in a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llama_py.batch import I32


def found_at(ids: I32, pattern: Sequence[int], first: int, last: int) -> I32:
    """Return positions in [first, last] at which a pattern begins, ascending."""
    first, last = max(first, 0), min(last, ids.size - len(pattern))
    at = np.arange(first, last + 1, dtype=np.int32)
    for i, id in enumerate(pattern):
        at = at[ids[at + i] == id]
    return at


def last_found(ids: I32, pattern: Sequence[int], first: int, last: int) -> int:
    """Return the last position in [first, last] at which a pattern begins; -1 if none."""
    at = found_at(ids, pattern, first, last)
    return int(at[-1]) if at.size else -1

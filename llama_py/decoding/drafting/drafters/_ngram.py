"""Search for tokens in a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llama_py.batch import I32


def find_pattern(ids: I32, pattern: Sequence[int], first: int, last: int) -> I32:
    """Return ascending start positions of a pattern in [first, last]."""
    first, last = max(first, 0), min(last, ids.size - len(pattern))
    at = np.arange(first, last + 1, dtype=np.int32)
    for i, id in enumerate(pattern):
        at = at[ids[at + i] == id]
    return at


def last_found(ids: I32, pattern: Sequence[int], first: int, last: int) -> int:
    """Return the last start position of a pattern in [first, last]; -1 if not found."""
    at = find_pattern(ids, pattern, first, last)
    return int(at[-1]) if at.size else -1

"""States that recurrences leave in caches, and drafts that are taken back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.llama_py.test_rollback import EACH, check_what_was_rejected
from tests.support.states_to_cache import RECURRENCES, ROWS, Made, computed


@pytest.mark.parametrize("n_tokens", [1, 7])
@pytest.mark.parametrize("n_seqs", ROWS)
@pytest.mark.parametrize("kind", RECURRENCES)
def test_states_go_to_the_cache(kind: str, n_seqs: int, n_tokens: int, device: Any) -> None:
    (plain, _), (merged, steps) = (
        computed(kind, Made(n_tokens, n_seqs, ROWS[n_seqs][2]), device, fuse)
        for fuse in (False, True)
    )
    # sequences would overwrite what others start from, if the scan wrote to what it reads
    assert ("CPY" in steps) == (kind.startswith("Mamba") and n_seqs > 1)
    for a, b in zip(plain, merged, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", EACH)
def test_what_was_rejected_does_not_matter(name: str, device: Any) -> None:
    check_what_was_rejected(name, device.name)

"""Recurrences that leave their states in a cache: the rows are those that CPY would fill."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.backend import registry
from tests.support.states_to_cache import RECURRENCES, ROWS, Made, computed


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("n_tokens", [1, 3, 7, 23])
@pytest.mark.parametrize("n_seqs", ROWS)
@pytest.mark.parametrize("kind", RECURRENCES)
def test_states_go_to_the_cache(kind: str, n_seqs: int, n_tokens: int, which: int) -> None:
    device, rows = registry.device("cpu"), ROWS[n_seqs][which]
    device.set_threads(2)
    (plain, nodes), (merged, steps) = (
        computed(kind, Made(n_tokens, n_seqs, rows), device, fuse) for fuse in (False, True)
    )
    assert nodes.count("CPY") == 1
    assert [s.endswith("+CPY") for s in steps].count(True) == 1 and "CPY" not in steps
    reads_cache = any(s.startswith("GET_ROWS+GATED_DELTA_NET") for s in steps)
    assert reads_cache == (kind in ("delta net", "KDA"))
    for a, b in zip(plain, merged, strict=True):
        np.testing.assert_array_equal(a, b)

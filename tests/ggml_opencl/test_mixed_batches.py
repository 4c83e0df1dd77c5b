"""Batches that mix tokens and embeddings: OpenCL computes the values of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.llama_py.test_mixed_batches import IDS, POS, SEVERAL, together
from tests.support.live_models import live, nmse


@pytest.mark.parametrize("name", [*SEVERAL, "qwen2vl-dense"])
def test_values_are_those_of_the_cpu(name: str) -> None:
    one = [(0,)] * len(IDS)
    pos = POS if name != "qwen2vl-dense" else np.tile(np.arange(len(IDS)), (4, 1))
    expected, found = (together(live(name, on), one, pos) for on in ("cpu", "opencl0"))
    assert nmse(expected, found) < 1e-9

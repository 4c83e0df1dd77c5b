"""Batches of tokens and embeddings: graphs and results are llama.cpp's, build b11739."""

from __future__ import annotations

import numpy as np
import pytest

from dev.record.newest import mixed
from ggml_py.inspection.dump import diff
from tests.support.golden_models import case
from tests.support.live_models import nmse

EXACT = {"flash": False, "cache": "f32"}


@pytest.mark.parametrize("name", mixed.recorded(mixed.NODES))
def test_nodes_equal_the_recorded_ones(name: str) -> None:
    n_embd, _ = mixed.recorded_values(name)
    found = mixed.run(case(name, "null"), n_embd, nodes=True).nodes
    assert str(diff(found, mixed.recorded_nodes(name)) or "") == ""


@pytest.mark.parametrize("name", mixed.recorded(mixed.VALUES))
def test_values_equal_the_recorded_ones(name: str) -> None:
    n_embd, expected = mixed.recorded_values(name)
    found = mixed.run(case(name), n_embd, **EXACT).values["rows"]
    assert nmse(expected.astype(np.float64), found) < 1e-6


@pytest.mark.parametrize("name", ["llama-dense", "gemma4-shared", "qwen2vl-dense"])
def test_any_split_gives_the_same(name: str) -> None:
    n_embd, expected = mixed.recorded_values(name)
    for n_ubatch in (1, 3):
        found = mixed.run(case(name, n_ubatch=n_ubatch), n_embd, **EXACT).values["rows"]
        assert nmse(expected.astype(np.float64), found) < 1e-6

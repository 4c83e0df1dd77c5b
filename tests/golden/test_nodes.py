"""Graphs are llama.cpp's, node for node: names, ops, shapes, strides, flags, parameters."""

from __future__ import annotations

import pytest

from dev.record.golden import store
from dev.record.golden.known import with_gates_along_keys
from dev.record.golden.runs import RUNS
from ggml_py.inspection.dump import diff
from tests.support.golden_models import case, runs_of
from tests.support.graph_models import split


@pytest.mark.parametrize(("name", "run"), runs_of("nodes-", nodes=True))
def test_nodes_equal_the_recorded_ones(name: str, run: str) -> None:
    ours = RUNS[run](case(name, "null")).nodes
    expected = store.nodes(*split(name))[run]
    if run == "nodes-unfused":
        expected = with_gates_along_keys(expected)
    assert str(diff(ours, expected) or "") == ""

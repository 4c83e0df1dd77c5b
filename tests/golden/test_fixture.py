"""The models of llama.cpp's test-llama-archs give its nodes and logits as they are.

All of their optional tensors are there, also those that llama.cpp's builders do not read.
"""

from __future__ import annotations

import numpy as np
import pytest

from dev.record.golden import fixture
from dev.record.golden.engines import Ours
from llama_py.models import known_architectures

NAMES = [*fixture.stored()]


FIRST = [0.08386258780956268, -0.17121173441410065, 0.06565336138010025]


def test_there_are_many() -> None:
    archs = {about["metadata"]["general.architecture"] for about in fixture.stored().values()}
    assert len(NAMES) >= 124 and len(archs) >= 100 and archs <= {*known_architectures()}
    assert len([*fixture.names()]) >= 20


@pytest.mark.parametrize("flash", ["on", "off"])
@pytest.mark.parametrize("name", NAMES)
def test_nodes(name: str, flash: str) -> None:
    about = fixture.stored()[name]
    file = fixture.file_of(name, with_values=False)
    forms = about.get("forms", {})
    engine = Ours(file, "null", nodes=True, flash=flash == "on", forms=forms)
    found = fixture.digest(fixture.list_nodes(engine, about["memory"]))
    assert found == about["nodes"][flash], f"see python -m dev.compare.judge_fixture DIR {name}"


@pytest.mark.parametrize("name", [*fixture.names()])
def test_logits(name: str) -> None:
    engine = Ours(fixture.file_of(name, with_values=True), "cpu", flash=False, cache="f32")
    expected = np.array(fixture.stored()[name]["logits"])
    assert fixture.nmse(expected, fixture.logits(engine)) < 1e-5


def test_values_of_a_tensor() -> None:
    """The first ones that the C++ library gives for a name."""
    found = fixture.values("blk.0.attn_q.weight", 3)
    np.testing.assert_allclose(found, FIRST, atol=1e-8)
    assert (fixture.values("blk.0.ssm_a", 100) < 0).all()

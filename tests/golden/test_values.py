"""Logits and hidden states are those of the real llama.cpp."""

from __future__ import annotations

import numpy as np
import pytest

from golden.runs import RUNS
from tests.golden_models import NAMES, case, causal, gold, runs_of, uses
from tests.live_models import nmse

GELU = ("GEGLU", "GELU")  # a table of F16 in llama.cpp


def compare(name: str, run: str, device: str, bound: float, **options: object) -> None:
    """Every array of a run: tokens are the same, floats close."""
    found, expected = RUNS[run](case(name, device, **options)).values, gold(name, run)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if values.dtype.kind == "i":
            assert found[key].tolist() == values.tolist()
        else:
            assert nmse(values.astype(np.float64), found[key]) <= bound, key


@pytest.mark.parametrize(("name", "run"), runs_of("", nodes=False))
def test_values_on_the_cpu(name: str, run: str) -> None:
    if run == "exact":
        compare(name, run, "cpu", 1e-6 if uses(name, *GELU) else 1e-9)
    else:
        compare(name, run, "cpu", 3e-6)


@pytest.mark.parametrize("name", [name for name, _ in runs_of("exact", nodes=False)])
def test_values_on_the_reference(name: str) -> None:
    compare(name, "exact", "ref", 1e-6 if uses(name, *GELU) else 1e-9)


@pytest.mark.parametrize("n_ubatch", [1, 7, 16])
@pytest.mark.parametrize("name", [name for name in NAMES if causal(name)])
def test_any_split_gives_the_same(name: str, n_ubatch: int) -> None:
    compare(name, "logits", "cpu", 3e-6, n_ubatch=n_ubatch)

"""Every way to compute the gated delta net gives llama.cpp's logits, and without rounded caches its
very own."""

from __future__ import annotations

import pytest

from golden import store
from llama_py.blocks.delta_net import DELTA_NET
from tests.golden_models import NAMES, compare, exact_bound
from tests.graph_models import split

DELTA = [name for name in NAMES if store.about(*split(name)).facts.delta_net]

pytestmark = [
    pytest.mark.parametrize("form", ["auto", *DELTA_NET.names]),
    pytest.mark.parametrize("name", DELTA),
]


def test_logits_are_those_of_llama_cpp(name: str, form: str) -> None:
    compare(name, "logits", "cpu", 3e-6, forms={"delta_net": form})


def test_nor_does_exact_arithmetic_tell_them_apart(name: str, form: str) -> None:
    compare(name, "exact", "cpu", exact_bound(name), forms={"delta_net": form})

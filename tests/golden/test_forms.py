"""Every way to compute the gated delta net gives llama.cpp's logits, and without rounded caches its
very own. The first form is the default, which test_values.py compares."""

from __future__ import annotations

import pytest

from dev.record.golden import store
from llama_py.blocks.delta_net import DELTA_NET
from llama_py.hparams.variants import SLOTS
from llama_py.models import architecture
from tests.support.golden_models import NAMES, compare, exact_bound
from tests.support.graph_models import first_of_each, memory_kinds, split

ABOUT = {name: store.about(*split(name)) for name in NAMES}
PREDICT = [name for name in NAMES if "logits" in ABOUT[name].runs and ABOUT[name].facts.delta_net]
MARKED = [name for name in NAMES if "marked" in ABOUT[name].runs and ABOUT[name].facts.delta_net]
DELTA = sorted(PREDICT + MARKED)

CASES = [
    (name, form)
    for name in DELTA
    for form in DELTA_NET.names[1:]
    if form != SLOTS or architecture(split(name)[0]).in_slots
]

EACH_KIND = first_of_each(memory_kinds, DELTA)


@pytest.mark.parametrize(("name", "form"), [case for case in CASES if case[0] in EACH_KIND])
def test_logits_are_those_of_llama_cpp(name: str, form: str) -> None:
    run = "logits" if name in PREDICT else "marked"
    compare(name, run, "cpu", 3e-6, forms={"delta_net": form})


@pytest.mark.parametrize(("name", "form"), [case for case in CASES if case[0] in PREDICT])
def test_nor_does_exact_arithmetic_tell_them_apart(name: str, form: str) -> None:
    compare(name, "exact", "cpu", exact_bound(name), forms={"delta_net": form})

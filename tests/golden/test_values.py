"""Logits and hidden states are those of the real llama.cpp."""

from __future__ import annotations

import pytest

from tests.support.golden_models import compare, exact_bound, runs_of, whole
from tests.support.graph_models import first_of_each, memory_kinds, split, stands_for_others


@pytest.mark.parametrize(("name", "run"), runs_of("", nodes=False))
def test_values_on_the_cpu(name: str, run: str) -> None:
    compare(name, run, "cpu", exact_bound(name) if run == "exact" else 3e-6)


KINDS = [(n, run) for n, run in runs_of("", nodes=False) if stands_for_others(*split(n))]


@pytest.mark.parametrize(("name", "run"), [(n, run) for n, run in KINDS if run == "exact"])
def test_values_on_the_reference(name: str, run: str) -> None:
    compare(name, run, "ref", exact_bound(name))


# A text of which every token sees every other is read in one piece.
IN_PIECES = [(n, run) for n, run in KINDS if run == "logits" and not whole(n)]


NAMES = [name for name, _ in IN_PIECES]
EACH_KIND = first_of_each(memory_kinds, NAMES)
SPLITS = [(n, 7) for n in NAMES] + [(n, n_ubatch) for n in EACH_KIND for n_ubatch in (1, 16)]


@pytest.mark.parametrize(("name", "n_ubatch"), SPLITS)
def test_any_split_gives_the_same(name: str, n_ubatch: int) -> None:
    compare(name, "logits", "cpu", 3e-6, n_ubatch=n_ubatch)

"""Recorded data belongs to the tiny models that the dictionaries make today."""

from __future__ import annotations

import numpy as np
import pytest

from dev import tiny_models as tiny
from dev.record.golden import store
from llama_py.models import known_architectures
from tests.support.golden_models import CASES, NAMES, path_of
from tests.support.graph_models import split
from tests.support.live_models import NEVER

COMMAND = "python -m dev.record.record_golden"


def test_every_architecture_has_tiny_models_and_data() -> None:
    missing = set(known_architectures()) - {arch for arch, _ in tiny.every()}
    assert not missing, f"write dev/tiny_models/ARCH.py for {sorted(missing)}"
    wanted = {case for case in tiny.every() if not tiny.find(*case).unrecorded}
    unrecorded = sorted({arch for arch, _ in wanted - set(CASES)})
    assert not unrecorded, f"not recorded: {COMMAND} {' '.join(unrecorded)}"
    stale = sorted(set(CASES) - set(tiny.every()))
    assert not stale, f"data of no dictionary, remove tests/data/golden/{stale}"


@pytest.mark.parametrize("name", NAMES)
def test_data_is_of_this_model(name: str) -> None:
    arch, variant = split(name)
    about = store.about(arch, variant)
    assert store.recipe(arch, variant) == about.recipe, (
        f"the dictionary has changed since it was recorded: {COMMAND} {arch}"
    )
    assert store.fingerprint(path_of(name)) == about.gguf, (
        "the file is another one than was recorded: other tensors are declared, or their values"
        f" are made otherwise; if that is right: {COMMAND} {arch}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_recorded_values_can_tell_something(name: str) -> None:
    """Rows differ from one another, and none is almost nothing but one large number."""
    for key, rows in store.values(*split(name)).items():
        assert np.isfinite(rows).all(), key
        rows = rows[..., ~(rows < NEVER).any(0)] if rows.ndim == 2 else rows
        if rows.ndim == 2 and len(rows) > 1 and not key.endswith(".steps"):  # these may repeat
            assert 0.1 < rows.std() < 20, (key, rows.std())
            assert np.abs(rows - rows.mean(0)).mean() > 0.1 * np.abs(rows).mean(), key


def test_all_data_is_small() -> None:
    files = [path for path in store.DATA.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25e6

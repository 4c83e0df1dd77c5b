"""Layers that attend to what earlier ones have stored, and layers that see later tokens in some
cases only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import HParamsError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.loading.split.block import SplitBlock
from tests.support.live_models import EXACT, PROMPT, made, model_of, nmse, tokens
from tests.support.split_models import placed, run


def refusal(**keys: Any) -> str:
    with pytest.raises(HParamsError) as caught:
        made("gemma4-shared", **keys)
    return str(caught.value)


def test_what_is_attended_to_must_be_alike() -> None:
    assert "must give layer " in refusal(
        attention__sliding_window_pattern=[False, False, True, True, False]
    )
    assert "must be the same in layers 3 and 1" in refusal(attention__head_count_kv=[2, 2, 2, 1, 2])
    assert "must be an array" in refusal(attention__sliding_window_pattern=3)


@pytest.mark.parametrize(("windows", "sees"), [([True] * 4, True), ([False] * 4, False)])
def test_later_tokens_are_seen_within_windows_only(windows: list[bool], sees: bool) -> None:
    """Of a model that is not causal, as where tokens of images are read."""
    keys = {"attention__causal": False, "attention__sliding_window_pattern": windows}
    model = model_of(*made("gemma4-moe", **keys))
    rows = [Context(model, **EXACT).decode([*PROMPT[:9], last], "all")[:9] for last in PROMPT[:2]]
    assert (nmse(*rows) > 1e-6) == sees


@pytest.mark.parametrize(("name", "divided"), [("gemma4-moe", [0, 1, 3]), ("gemma4-shared", [0])])
def test_devices_share_attention_that_no_later_layer_needs(name: str, divided: list[int]) -> None:
    """Nor one with a single head of keys."""
    parts = model_of(*made(name), placed((1, 1)))
    assert nmse(run(model_of(*made(name), "cpu")), run(parts)) <= 1e-10
    layers: Any = parts.architecture
    kinds = [isinstance(layer.attention, SplitBlock) for layer in layers.layers]
    assert np.flatnonzero(kinds).tolist() == divided


def test_moved_keys_turn_with_their_layers_factors() -> None:
    """Layers without a window have factors of frequencies, the others none."""
    model, ids = model_of(*made("gemma4-moe")), tokens(10, seed=4)
    moved, fresh = Context(model, **EXACT), Context(model, **EXACT)
    moved.decode(ids[:9])
    moved.memory.seq_add(0, 0, -1, 7)
    fresh.decode(Batch(ids[:9], pos=[*range(7, 16)]))
    rows = [ctx.decode(Batch(ids[9:], pos=[16])) for ctx in (fresh, moved)]
    assert nmse(*rows) < 1e-9

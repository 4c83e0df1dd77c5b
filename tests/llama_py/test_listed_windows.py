"""Layers with windows that a file must list in an array."""

from __future__ import annotations

from typing import Any

import pytest

from tests.llama_py.test_hparams import read, refusal

PATTERN = "attention.sliding_window_pattern"


@pytest.mark.parametrize("name", ["kolibri1-moe", "maion-coder-moe"])
@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (PATTERN, 2, "must be an array"),
        (PATTERN, True, "must be an array"),
        (PATTERN, None, "is missing"),
        (PATTERN, [True], "items instead of 1"),
        ("attention.sliding_window", 0, "at least 1"),
    ],
)
def test_refused(name: str, key: str, value: Any, why: str) -> None:
    message = refusal(name, **{key.replace(".", "__"): value})
    assert why in message and key in message


@pytest.mark.parametrize("name", ["kolibri1-moe", "maion-coder-moe"])
def test_experts_are_needed(name: str) -> None:
    assert "expert_count must be at least 1" in refusal(name, expert_count=0, expert_used_count=0)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("interleave_moe_layer_step", 0, "at least 1"),
        ("moe_latent_size", 0, "at least 1"),
        ("rope.dimension_count", 16, "must be the head size 32"),
        ("rope.dimension_count_swa", 16, "must be the head size 32"),
        (PATTERN, [True, False, True, False], "must have 3 items instead of 4"),
    ],
)
def test_refused_with_experts_in_some_layers(key: str, value: Any, why: str) -> None:
    assert why in refusal("maion-coder-moe", **{key.replace(".", "__"): value})


def test_windows_do_not_change_the_size_of_heads() -> None:
    sizes = {"attention__key_length_swa": 48, "attention__value_length_swa": 48}
    assert "must be key_length = 32" in refusal("kolibri1-moe", **sizes)


@pytest.mark.parametrize("n", [0, 2])
def test_number_of_shared_experts(n: int) -> None:
    assert "from 1 to 1" in refusal("kolibri1-moe", expert_shared_count=n)


def test_only_windows_have_rope() -> None:
    hp = read("kolibri1-moe", rope__freq_base_swa=7.0)
    first, second = hp.layers
    assert first.rope is not None and first.rope.freq_base == 10000.0
    assert first.window is not None and second.rope is second.window is None


def test_the_first_layer_sets_the_rotated_dimensions() -> None:
    changes: dict[str, Any] = {"rope__dimension_count_swa": 16}
    first = read("kolibri1-moe", **changes).layers[0].rope
    assert first is not None and first.n_rot == 16
    changes["attention__sliding_window_pattern"] = [False, True]
    second = read("kolibri1-moe", **changes).layers[1].rope
    assert second is not None and second.n_rot == 32


def test_layers_that_only_draft_need_no_entry() -> None:
    hp = read("kolibri1-moe", block_count=3, nextn_predict_layers=1)
    assert [layer.window is not None for layer in hp.layers] == [True, False, False]

"""States that are rows of slots."""

from __future__ import annotations

from typing import Any

from tests.llama_py.test_slots import check_logits, check_what_was_rejected

NAME = "qwen35moe-moe"


def test_logits_are_those_of_states_in_cells(device: Any) -> None:
    check_logits(NAME, device.name)


def test_what_was_rejected_does_not_matter(device: Any) -> None:
    check_what_was_rejected(NAME, device.name)

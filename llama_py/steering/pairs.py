"""Pairs of prompts that differ in the property to steer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ggml_py.errors import ContextError


class Pair(NamedTuple):
    """The direction leads from `negative` to `positive`."""

    positive: str
    negative: str


def template_pairs(
    template: str, positive: Sequence[str], negative: Sequence[str], suffixes: Iterable[str] = ("",)
) -> list[Pair]:
    """Fill `{}` in a template with each positive and negative word, then append each suffix to
    both.

    Raises ContextError for a template without `{}`, or lists of different lengths.
    """
    if "{}" not in template:
        raise ContextError(f"template must contain {{}} for the words, got {template!r}")
    words = pair_prompts(positive, negative)
    filled = [Pair(*(template.replace("{}", word) for word in pair)) for pair in words]
    return [Pair(a + end, b + end) for end in suffixes for a, b in filled]


def pair_prompts(positive: Sequence[str], negative: Sequence[str]) -> list[Pair]:
    """Pair two lists; ContextError if they are empty or differ in length."""
    if len(positive) != len(negative) or not positive:
        raise ContextError(
            f"{len(positive)} positive and {len(negative)} negative prompts; pass the same "
            "number of both"
        )
    return [Pair(a, b) for a, b in zip(positive, negative, strict=True)]

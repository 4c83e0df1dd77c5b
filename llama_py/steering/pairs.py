"""Pairs of prompts that differ in what is to be steered."""

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
    """A template with each positive word in the place of `{}`, and with the negative one beside it;
    then each of the suffixes, the same in both.

    Raises ContextError for a template without `{}`, or lists of different lengths.
    """
    if "{}" not in template:
        raise ContextError(f"the template {template!r} has no {{}}, where the words are to be")
    words = paired(positive, negative)
    filled = [Pair(*(template.replace("{}", word) for word in pair)) for pair in words]
    return [Pair(a + end, b + end) for end in suffixes for a, b in filled]


def paired(positive: Sequence[str], negative: Sequence[str]) -> list[Pair]:
    """ContextError unless there are as many of each, and some."""
    if len(positive) != len(negative) or not positive:
        raise ContextError(
            f"there are {len(positive)} positive and {len(negative)} negative prompts; give as many"
            " of one kind as of the other"
        )
    return [Pair(a, b) for a, b in zip(positive, negative, strict=True)]

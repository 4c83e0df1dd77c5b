"""Suggestions of known words for an unknown word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FEW = 12  # maximum words for a complete list
ALIKE = 0.6  # minimum equal fraction of two words
MOST = 3


def nearest(given: str, known: Iterable[str], alike: float = ALIKE, best: float = 1) -> list[str]:
    """Return similar words, the most similar first; without any, the most similar if it reaches
    `best`."""
    from difflib import SequenceMatcher  # slow to import

    def likeness(word: str) -> float:
        return SequenceMatcher(None, given.lower(), word.lower()).ratio()

    found = sorted(((likeness(word), word) for word in known), key=lambda pair: -pair[0])
    words = [word for much, word in found if much >= alike][:MOST]
    return words or [word for much, word in found[:1] if much >= best]


def did_you_mean(given: str, known: Iterable[str], alike: float = ALIKE, best: float = 1) -> str:
    """Return `did you mean q8_0 or q5_0?`; "" without similar words."""
    words = nearest(given, known, alike, best)
    return f"did you mean {' or '.join(words)}?" if words else ""


def shorten_list(known: Sequence[str]) -> str:
    """Return `f32, f16, q4_0 and 23 others`; a complete list if it is short."""
    if len(known) <= FEW:
        return ", ".join(known)
    return f"{', '.join(known[:MOST])} and {len(known) - MOST} others"

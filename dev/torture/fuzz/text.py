"""Texts damaged with parts of their language."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

MOST = 4000  # characters


def damaged(rng: Random, text: str, parts: Sequence[str]) -> str:
    """Return the text with some spans cut, repeated, or replaced by parts."""
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        a, b = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        b = min(b, a + rng.choice((0, 1, 3, 40)))
        piece = text[a:b]
        new = rng.choice((
            "", piece * rng.choice((2, 2, 300)), rng.choice(parts), rng.choice(parts) + piece,
            rng.choice(parts) * rng.choice((1, 2, 200)),
        ))  # fmt: skip
        text = (text[:a] + new + text[b:])[:MOST]
    return text

"""What limits the states that an item keeps."""

from __future__ import annotations

LARGEST_STATE = 256  # values that an item keeps


def small_state(index: int, what: str) -> str:
    return f"needs states of at most {LARGEST_STATE} per {what}; got {index}"

"""Numbers of bytes: parsing and display."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def parse_size(text: str) -> int:
    """Parse `500M` to bytes; K, M, G are decimal, like llama-gguf-split's."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if found is None:
        raise ValueError(
            f"{text!r} is not a size; use bytes with an optional K, M or G (powers of 1000), "
            "such as 500M"
        )
    return int(found[1]) * _UNITS[found[2]]


def show_size(n: float) -> str:
    """Write a number of bytes in the unit that people read."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            break
        n /= 1024
    return f"{n:.0f} {unit}" if unit == "B" else f"{n:.2f} {unit}"

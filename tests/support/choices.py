"""Tasks with several answers, in the binary format of llama-perplexity --multiple-choice."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np


def pack_choices(tasks: Sequence[tuple[str, list[str], int]]) -> bytes:
    """The file of questions, each with its answers and the right one's index."""

    def text(t: str) -> bytes:
        return struct.pack("<I", len(t)) + t.encode()

    def one(answers: list[str], right: int) -> bytes:
        labels = [int(i == right) for i in range(len(answers))]
        n = len(answers)
        return struct.pack("<I", n) + b"".join(map(text, answers)) + struct.pack(f"<{n}I", *labels)

    parts = [text(q) + one(a, right) + one(["other"], 0) for q, a, right in tasks]
    places = np.cumsum([4 + 4 * len(parts), *map(len, parts)])[:-1]
    return struct.pack(f"<{1 + len(parts)}I", len(parts), *places.tolist()) + b"".join(parts)

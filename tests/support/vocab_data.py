"""Whole vocabularies with llama.cpp's test vectors, as dev/record/pack_vocab.py has packed them."""

from __future__ import annotations

import json
import lzma
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "vocab"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in DATA.glob("*.json.xz"))

ARRAYS = {
    "tokenizer.ggml.scores": "f4",
    "tokenizer.ggml.token_type": "i4",
    "tokenizer.ggml.precompiled_charsmap": "u1",
}


class Vocabulary(NamedTuple):
    """metadata: the tokenizer's keys; ids of each text without special tokens (some have none)."""

    metadata: dict[str, Any]
    texts: list[str]
    ids: list[list[int]]


@cache
def vocabulary(name: str) -> Vocabulary:
    raw = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    metadata, (steps, cuts) = raw["metadata"], raw["merges"] or ([], [])
    made = [metadata["tokenizer.ggml.tokens"][i] for i in accumulate(steps)]
    if made:
        merges = [f"{token[:n]} {token[n:]}" for token, n in zip(made, cuts, strict=True)]
        metadata["tokenizer.ggml.merges"] = merges
    for key, dtype in ARRAYS.items():
        if key in metadata:
            metadata[key] = np.array(metadata[key], dtype)
    return Vocabulary(metadata, raw["texts"], raw["ids"])

"""Whole vocabularies with llama.cpp's test vectors, as tools/pack_vocab.py has packed them."""

from __future__ import annotations

import json
import lzma
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tests.gguf_writer import array, gguf, kv

DATA = Path(__file__).parent / "data" / "vocab"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in DATA.glob("*.json.xz"))


class Vocabulary(NamedTuple):
    """metadata: the tokenizer's keys; ids of each text, without special tokens."""

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
    return Vocabulary(metadata, raw["texts"], raw["ids"])


def file_content(metadata: dict[str, Any]) -> bytes:
    """A GGUF file of a vocabulary alone, which llama.cpp opens."""
    sizes = dict.fromkeys(("context_length", "embedding_length", "block_count"), 1)
    return gguf(
        [
            kv("general.architecture", "str", "llama"),
            *(kv(f"llama.{name}", "u32", n) for name, n in sizes.items()),
            kv("llama.attention.head_count", "u32", 1),
            kv("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5),
            *(_entry(key, value) for key, value in metadata.items()),
        ]
    )


def _entry(key: str, value: Any) -> bytes:
    if isinstance(value, list):
        signed = key.endswith("token_type")
        kind = "str" if isinstance(value[0], str) else "i32" if signed else "f32"
        return kv(key, "arr", array(kind, value))
    kind = {bool: "bool", int: "u32", float: "f32", str: "str"}[type(value)]
    return kv(key, kind, value)

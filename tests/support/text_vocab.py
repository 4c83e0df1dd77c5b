"""Metadata of small vocabularies, as it comes from a GGUF file."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from llama_py.gguf.file import GGUFFile
from llama_py.tokenizer import Tokenizer, TokenType
from tests.support.gguf_writer import array, gguf, kv

Types = dict[str, TokenType]
KEYS = "tokenizer.ggml."


def characters() -> list[str]:
    """GPT-2's character for each byte, from its definition: https://github.com/openai/gpt-2."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) if b in shown else chr(256 + hidden.index(b)) for b in range(256)]


def bpe(*pairs: str, special: Types | None = None, **keys: Any) -> Tokenizer:
    """Ids 0..255 are bytes, then the results of the merges `pairs`, then `special`."""
    return Tokenizer.from_metadata(bpe_meta(*pairs, special=special, **keys))


def bpe_meta(*pairs: str, special: Types | None = None, **keys: Any) -> dict[str, Any]:
    tokens = characters() + [pair.replace(" ", "") for pair in pairs]
    types = [TokenType.NORMAL] * len(tokens) + list((special or {}).values())
    meta = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens + list(special or {}),
        "token_type": types,
        "merges": list(pairs),
        **keys,
    }
    return {f"tokenizer.ggml.{k}": v for k, v in meta.items() if v is not None}


def spm(scored: dict[str, float], special: Types | None = None, **keys: Any) -> Tokenizer:
    """<unk>, <s>, </s>, the 256 bytes, then `scored`, then `special`."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *scored]
    types = [2, 3, 3, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(scored)]
    meta = {
        "model": "llama",
        "tokens": tokens + list(special or {}),
        "token_type": types + list((special or {}).values()),
        "scores": [0.0] * 259 + list(scored.values()) + [0.0] * len(special or {}),
        **keys,
    }
    return Tokenizer.from_metadata({f"tokenizer.ggml.{k}": v for k, v in meta.items()})


@cache
def demo_with(*marks: str) -> Tokenizer:
    """The demo model's vocabulary, with control tokens for marks behind it."""
    from tests.support.commands import DEMO

    with GGUFFile.open(DEMO) as file:
        meta = dict(file.metadata)
    marks = tuple(dict.fromkeys(mark for mark in marks if mark not in meta[f"{KEYS}tokens"]))
    meta[f"{KEYS}tokens"] = [*meta[f"{KEYS}tokens"], *marks]
    meta[f"{KEYS}token_type"] = [*meta[f"{KEYS}token_type"], *[TokenType.CONTROL] * len(marks)]
    return Tokenizer.from_metadata(meta)


def vocab_gguf(meta: dict[str, Any]) -> bytes:
    """A GGUF file of a vocabulary and no weights, which llama.cpp opens too."""
    integers = dict.fromkeys(("context_length", "embedding_length", "block_count"), 1)
    return gguf(
        [
            *(_kv(key, value) for key, value in ({"general.architecture": "llama"} | meta).items()),
            *(kv(f"llama.{name}", "u32", n) for name, n in integers.items()),
            kv("llama.attention.head_count", "u32", 1),
            kv("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5),
        ]
    )


def _kv(key: str, value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        kind = {"i": "i", "u": "u", "f": "f"}[value.dtype.kind] + str(8 * value.dtype.itemsize)
        return kv(key, "arr", array(kind, value.tolist()))
    if isinstance(value, list):
        kind = "str" if isinstance(value[0], str) else "f32" if key.endswith("scores") else "i32"
        return kv(key, "arr", array(kind, value))
    kinds = {bool: "bool", int: "u32", float: "f32", str: "str"}
    return kv(key, kinds[type(value)], value)

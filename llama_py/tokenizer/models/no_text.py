"""Files without a vocabulary: `tokenizer.ggml.model` = none, no_vocab, test (tiny test models)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.gguf_metadata import describe, printable
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.vocab import PREFIX, Defaults, read_vocab

_MAX_TOKENS = 1 << 20


class NoText(TextModel):
    """Ids have names to show (`tok_5`), but no text can be cut into them."""

    names = ("none", "no_vocab", "test")

    def __init__(self, meta: Mapping[str, Any]) -> None:
        if PREFIX + "tokens" not in meta:
            meta = {PREFIX + "tokens": [f"tok_{i}" for i in range(_vocab_size(meta))]}
        self.vocab = read_vocab(meta, Defaults())

    def encode(self, text: str) -> list[int]:
        raise TokenizerError(
            "this model file has no vocabulary to read text with; give one that has, or token ids"
            " where they are taken (llama-py-debug --tokens 1,2,3)"
        )

    def normal(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogateescape")


def _vocab_size(meta: Mapping[str, Any]) -> int:
    key = printable(f"{meta.get('general.architecture')}.vocab_size")
    size = meta.get(key, 0)
    if not isinstance(size, int) or not 0 <= size <= _MAX_TOKENS:
        shown = describe(size)
        raise TokenizerError(f"{key} must be an integer in 0..{_MAX_TOKENS}, it is {shown}")
    return size

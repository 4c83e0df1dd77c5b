"""SentencePiece merging by score with byte fallback (`tokenizer.ggml.model` = llama).

Like llama-vocab.cpp:llm_tokenizer_spm_session: any two adjacent texts that form a token may merge,
also if one is no token; the best score is merged first, the leftmost if equal. The `tokenizers`
library ranks pairs of tokens only, so it cannot express this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.models._base import LONG, SPACE, TextModel
from llama_py.tokenizer.models._merge import merge_symbols
from llama_py.tokenizer.vocab import Defaults, read_vocab

_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_DEFAULTS = Defaults(
    add_bos=True, add_space_prefix=True, special_ids={"unk": 0, "bos": 1, "eos": 2}
)


class ScoredPieces(TextModel):
    """A space is U+2581 inside tokens; a character without a token becomes its bytes' tokens."""

    names = ("llama",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, _DEFAULTS)
        self._ids_of_word = lru_cache(maxsize=1 << 16)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        text = (" " * self.vocab.add_space_prefix + text).replace(" ", SPACE)
        words = _WORD.findall(text) if self._merges_stay_in_words else [text]
        known, made = self._ids_of_word, self._encode_word
        return [
            id
            for word in iterate_checked(words)
            for id in (known(word) if len(word) < LONG else made(word))
        ]

    @cached_property
    def _merges_stay_in_words(self) -> bool:
        """True if no token has a space after another character, so that words are independent."""
        return not any(SPACE in text.lstrip(SPACE) for text in self.vocab.texts)

    def _encode_word(self, word: str) -> list[int]:
        ids = self.vocab.ids
        out: list[int] = []
        for symbol in self._merge(word):
            if symbol in ids:
                out.append(ids[symbol])
            else:
                out += map(self._byte_id, symbol.encode("utf-8", "surrogateescape"))
        return out

    def _merge(self, text: str) -> list[str]:
        ranks = self._ranks

        def rank(text: str, a: int, b: int, c: int) -> float | None:
            return ranks.get(text[a:c])

        return merge_symbols(text, rank)

    @cached_property
    def _ranks(self) -> dict[str, float]:
        return {text: -self.vocab.scores[id] for text, id in self.vocab.ids.items()}

    def _byte_id(self, byte: int) -> int:
        ids = self.vocab.ids
        for text in (f"<0x{byte:02X}>", chr(byte) if byte < 0x80 else ""):
            if text in ids:
                return ids[text]
        return self.vocab.unk

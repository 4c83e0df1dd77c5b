"""SentencePiece merging by score with byte fallback (`tokenizer.ggml.model` = llama).

Like llama-vocab.cpp:llm_tokenizer_spm_session: any two adjacent texts that form a token may merge,
also if one is no token; the best score is merged first, the leftmost if equal. The `tokenizers`
library ranks pairs of tokens only, so it cannot express this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.models._base import LONG, SPACE, TextModel
from llama_py.tokenizer.models._merge import merge_symbols
from llama_py.tokenizer.vocab import Defaults, read_vocab

_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_BROKEN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8
_WIDTHS = (1,) * 12 + (2, 2, 3, 4)  # bytes of a character by the first four bits
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
        ids: list[int] = []
        for part in iterate_checked(_split_broken(text)):
            ids += self._encode_text(part) if isinstance(part, str) else map(self._byte_id, part)
        return ids

    def _encode_text(self, text: str) -> list[int]:
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
                out += map(self._byte_id, symbol.encode())
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


def _split_broken(text: str) -> Iterator[str | bytes]:
    """Yield texts, and bytes that are no character.

    A first byte takes as many bytes as its character would have, also if they are others
    (llama-vocab.cpp:llm_tokenizer_spm_session::tokenize).
    """
    if not _BROKEN.search(text):
        yield text
        return
    data, start, at = text.encode("utf-8", "surrogateescape"), 0, 0
    while at < len(data):
        end = at + _WIDTHS[data[at] >> 4]
        try:
            data[at:end].decode()
        except UnicodeDecodeError:
            yield data[start:at].decode()
            yield data[at:end]
            start = end
        at = end
    yield data[start:].decode()

"""Byte-level BPE (`tokenizer.ggml.model` = gpt2): words by regex, then merges by rank."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.pre import PRE_TOKENIZERS, PreTokenizer
from llama_py.tokenizer.vocab import PREFIX, Defaults, read_vocab, strings

log = logging.getLogger("llama_py")

_SURROGATE = re.compile("[\ud800-\udfff]")


def _byte_characters() -> list[str]:
    """GPT-2's character for each byte: itself where it prints, else the next one from U+0100."""
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printing else next(others)) for b in range(256)]


_CHARACTERS = _byte_characters()
_BYTE_OF = {character: bytes([b]) for b, character in enumerate(_CHARACTERS)}


class BytePairs(TextModel):
    """Texts to ids as llama.cpp's llm_tokenizer_bpe_session does; the work is the Rust library's.

    The library's tokenizer is built on first use: 0.4 s for a vocabulary of 250,000.
    """

    names = ("gpt2",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self._pre = _pre_tokenizer(meta)
        self._merges = strings(meta, "merges")
        self.vocab = read_vocab(meta, Defaults(add_bos=self._pre.add_bos))

    def encode(self, text: str) -> list[int]:
        """Bytes that were not UTF-8 become U+FFFD each."""
        encoding = self._tokenizer.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)
        n_vocab = len(self.vocab.texts)
        return [i for i in encoding.ids if i < n_vocab]

    def normal(self, text: str) -> bytes:
        """A normal token's bytes; a character that stands for no byte is taken as it is."""
        return b"".join(_BYTE_OF.get(c) or c.encode("utf-8", "surrogateescape") for c in text)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer, models

        ids = self._ids_of_all_bytes()
        tokenizer = Tokenizer(
            models.BPE(vocab=ids, merges=self._pairs(ids), ignore_merges=self._pre.ignore_merges)
        )
        tokenizer.pre_tokenizer = self._pre.build()
        return tokenizer

    def _ids_of_all_bytes(self) -> dict[str, int]:
        """The vocabulary the library can take: UTF-8, and a token for every byte.

        It would drop a byte without a token before it merges, and so merge what is not adjacent.
        Such bytes get ids above the vocabulary and are dropped from the result.
        """
        ids = self.vocab.ids
        if _SURROGATE.search("".join(ids)):
            ids = {text: i for text, i in ids.items() if not _SURROGATE.search(text)}
        missing = [c for c in _CHARACTERS if c not in ids]
        return ids | {c: len(self.vocab.texts) + n for n, c in enumerate(missing)}

    def _pairs(self, ids: Mapping[str, int]) -> list[tuple[str, str]]:
        pairs, unusable = [], 0
        for merge in dict.fromkeys(self._merges):
            cut = merge.find(" ", 1)
            left, right = merge[:cut], merge[cut + 1 :]
            if cut > 0 and left in ids and right in ids and left + right in ids:
                pairs.append((left, right))
            else:
                unusable += 1
        if unusable:
            log.warning("%smerges: %d merges of or into no token: ignored", PREFIX, unusable)
        return pairs


def _pre_tokenizer(meta: Mapping[str, Any]) -> PreTokenizer:
    name = str(meta.get(PREFIX + "pre"))
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    nearest = difflib.get_close_matches(name, PRE_TOKENIZERS, n=1)
    raise TokenizerError(
        f"{PREFIX}pre is {name!r}, which is not known; known: {', '.join(sorted(PRE_TOKENIZERS))}"
        + (f" (nearest: {nearest[0]})" if nearest else "")
        + "; to add it: an entry in llama_py/tokenizer/pre.py"
    )

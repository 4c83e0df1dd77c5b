"""Byte-level BPE (`tokenizer.ggml.model` = gpt2 and others): words, then merges by rank."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.characters import by_pieces, decode_utf8, is_space, lower
from llama_py.tokenizer.models._base import LONG, SPACE, TextModel
from llama_py.tokenizer.models._merge import merge_symbols
from llama_py.tokenizer.pre import PRE_TOKENIZERS, PreTokenizer
from llama_py.tokenizer.vocab import PREFIX, Defaults, flag, read_vocab, strings

log = logging.getLogger("llama_py")


def _byte_characters() -> list[str]:
    """Return GPT-2's character for each byte: itself if printable, else the next from U+0100."""
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printing else next(others)) for b in range(256)]


_CHARACTERS = _byte_characters()
_SPELLING = str.maketrans(dict(enumerate(_CHARACTERS)))
_BYTE_OF = {character: bytes([b]) for b, character in enumerate(_CHARACTERS)}


def _spell(text: str) -> str:
    """Return GPT-2's characters for the bytes of a text."""
    return text.encode().decode("latin-1").translate(_SPELLING)


class BytePairs(TextModel):
    """Texts to ids like llama.cpp's llm_tokenizer_bpe_session.

    The Rust library merges, created on first use (0.4 s for a vocabulary of 250,000), if its
    result equals llama.cpp's: all bytes and merged texts are tokens. Otherwise this module merges.
    """

    names = ("gpt2",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self._pre = self._pre_tokenizer(meta)
        without = str(meta.get(PREFIX + "pre")) == "kimi-k2" and PREFIX + "merges" not in meta
        self._merges = [] if without else strings(meta, "merges")
        defaults = Defaults(
            add_bos=self._pre.add_bos,
            always_bos=self._pre.always,
            add_sep=self._pre.add_sep,
            clean_spaces=self._pre.clean_spaces,
            special_ids=self._default_ids(),
        )
        self.vocab = read_vocab(meta, defaults)
        self._ids_of_word = lru_cache(maxsize=1 << 16)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Encode a text; each byte that is not UTF-8 becomes U+FFFD."""
        return self._encode(text.replace(" ", SPACE) if self._pre.escape else text)

    def normal(self, text: str) -> bytes:
        """Return a normal token's bytes; characters that represent no byte are kept."""
        if not self._pre.as_bytes:
            return super().normal(text)
        return b"".join(_BYTE_OF.get(c) or c.encode("utf-8", "surrogateescape") for c in text)

    def _pre_tokenizer(self, meta: Mapping[str, Any]) -> PreTokenizer:
        name = meta.get(PREFIX + "pre", "")
        if not isinstance(name, str):
            raise TokenizerError(
                f"{PREFIX}pre must be a string, got {type(name).__name__}; convert the model again"
            )
        if not name:
            log.warning("%spre is missing, so the pre-tokenizer 'default' is used", PREFIX)
        return pre_tokenizer(name or "default")

    def _default_ids(self) -> dict[str, int]:
        return self._pre.default_ids

    def _encode(self, text: str) -> list[int]:
        words = self._pre.split(decode_utf8(text))
        if self._pre.space_prefix:
            words = [word if word[0] in (SPACE, "\n") else SPACE + word for word in words]
        known, made = self._ids_of_word, self._encode_word
        return [
            id
            for word in iterate_checked(words)
            for id in (known(word) if len(word) < LONG else made(word))
        ]

    def _encode_word(self, word: str) -> list[int]:
        pre, ids = self._pre, self.vocab.ids
        if pre.as_bytes:
            word = by_pieces(_spell, word)
        whole = pre.ignore_merges or (pre.newlines and not word.strip("\n"))
        if whole and word in ids:
            return [ids[word]]
        if self._library:
            return self._merge(word)
        ranks = self._ranks

        def rank(text: str, a: int, b: int, c: int) -> int | None:
            return ranks.get((text[a:b], text[b:c]))

        return [id for symbol in merge_symbols(word, rank) for id in self._ids_of_symbol(symbol)]

    def _merge(self, word: str) -> list[int]:
        """Return a word's ids by the library."""
        if len(word) < LONG:
            found = self._library.encode(word, add_special_tokens=False)
        else:  # without offsets, and without the GIL
            [found] = self._library.encode_batch_fast([word], add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def _ids_of_symbol(self, symbol: str) -> Iterator[int]:
        """Yield a symbol's id; if it is no token, the ids of its bytes that are tokens."""
        ids = self.vocab.ids
        if symbol in ids:
            yield ids[symbol]
            return
        for b in symbol.encode():
            name = self._name_of_byte(b)
            if name in ids:
                yield ids[name]

    def _name_of_byte(self, byte: int) -> str:
        """Return the text of a byte without a symbol: the byte, or its written form."""
        raw = bytes([byte]).decode("utf-8", "surrogateescape")
        return raw if self._pre.as_bytes else f"<0x{byte:02X}>"

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        """Ranks of merges; the first of equal merges counts, and invalid merges are ignored."""
        found: dict[tuple[str, str], int] = {}
        for i, merge in enumerate(self._merges):
            cut = merge.find(" ", 1)
            if cut > 0:
                found.setdefault((merge[:cut], merge[cut + 1 :]), i)
        return found

    @cached_property
    def _library(self) -> Any:
        """A `tokenizers.Tokenizer`, or None."""
        ids = {text: id for text, id in self.vocab.ids.items() if decode_utf8(text) == text}
        names = _CHARACTERS if self._pre.as_bytes else [f"<0x{b:02X}>" for b in range(256)]
        made = (text for a, b in self._ranks for text in (a, b, a + b))
        if not all(text in ids for text in (*names, *made)):
            return None
        from tokenizers import Tokenizer, models

        fallback = not self._pre.as_bytes
        return Tokenizer(models.BPE(vocab=ids, merges=list(self._ranks), byte_fallback=fallback))


def pre_tokenizer(name: str) -> PreTokenizer:
    """Return the pre-tokenizer with this name; TokenizerError suggests a similar one."""
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    import difflib

    nearest = difflib.get_close_matches(name, PRE_TOKENIZERS, n=1)
    raise TokenizerError(
        f"unknown {PREFIX}pre {name!r}; known: {', '.join(sorted(PRE_TOKENIZERS))}"
        + (f" (nearest: {nearest[0]})" if nearest else "")
        + "; to add it: an entry in llama_py/tokenizer/pre.py"
    )


class SpacedPairs(BytePairs):
    """Merges of characters in whole lines (`tokenizer.ggml.model` = gemma4); spaces are U+2581."""

    names = ("gemma4",)

    def _pre_tokenizer(self, meta: Mapping[str, Any]) -> PreTokenizer:
        return pre_tokenizer("gemma4")

    def _default_ids(self) -> dict[str, int]:
        return {}


class WhitespaceBPE(BytePairs):
    """Words between white space, which is lost (`tokenizer.ggml.model` = whitespace)."""

    names = ("whitespace",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        super().__init__(meta)
        self._lowercase = flag(meta, "normalizer.lowercase", self._pre.lowercase)

    def _encode(self, text: str) -> list[int]:
        text = decode_utf8(text)
        shown = {c: " " if is_space(c) else lower(c) if self._lowercase else c for c in set(text)}
        words = "".join(map(shown.__getitem__, text)).split(" ")
        return [id for word in words for id in super(WhitespaceBPE, self)._encode(word)]

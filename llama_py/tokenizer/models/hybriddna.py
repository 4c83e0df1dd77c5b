"""Byte-level BPE with sections of DNA (`tokenizer.ggml.model` = hybriddna).

Like llama-vocab.cpp:llm_tokenizer_hybriddna_session: between `<dna>` and `</dna>`, each group of
six letters is a token. In a GGUF file such a token ends with U+E000, unlike a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.models.bpe import BytePairs

_OPEN, _CLOSE, _OTHER = "<dna>", "</dna>", "<oov>"
_MARK = "\ue000"
_LENGTH = 6


class HybridDna(BytePairs):
    """Model with DNA tokens; all text is plain if the vocabulary lacks any of their three
    markers."""

    names = ("hybriddna",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        super().__init__(meta)
        vocab, after = self.vocab, self.vocab.ids.get(_OTHER, len(self.vocab.texts))
        texts = vocab.texts[: after + 1]
        texts += (t.removesuffix(_MARK) if t != _MARK else t for t in vocab.texts[after + 1 :])
        self.vocab = replace(vocab, texts=texts)

    def _encode(self, text: str) -> list[int]:
        found = self.vocab.ids
        if not all(tag in found for tag in (_OPEN, _CLOSE, _OTHER)):
            return super()._encode(text)
        ids: list[int] = []
        while text:
            plain, opening, rest = text.partition(_OPEN)
            ids += super()._encode(plain) if plain else []
            dna, closing, text = rest.partition(_CLOSE)
            ids += [found[_OPEN]] * bool(opening)
            ids += self._dna(dna)
            ids += [found[_CLOSE]] * bool(closing)
        return ids

    def _dna(self, text: str) -> list[int]:
        """Encode letters of either case; the last token is padded with A."""
        data, ids = text.encode("utf-8", "surrogateescape").upper(), self.vocab.ids
        parts = (data[i : i + _LENGTH] for i in iterate_checked(range(0, len(data), _LENGTH)))
        names = (part.ljust(_LENGTH, b"A").decode("utf-8", "surrogateescape") for part in parts)
        return [ids.get(name + _MARK, ids[_OTHER]) for name in names]

"""PLaMo 2 (`tokenizer.ggml.model` = plamo2): the segmentation with the best score.

Like llama-vocab.cpp:llm_tokenizer_plamo2, which finds the tokens that start at a character with a
table of suffixes; here a trie does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ggml_py.errors import TokenizerError
from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.characters import decode_utf8
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.models._trie import Trie, matches, trie
from llama_py.tokenizer.vocab import Defaults, TokenType, read_vocab

_UNKNOWN, _INVALID = -10_000_000, -20_000_000  # scores times 10,000
_DEFAULTS = Defaults(first=(), last=(), special_ids={"unk": 0, "bos": 1, "eos": 2, "pad": 3})
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class Suffixes(TextModel):
    """A character without a token becomes its bytes' tokens, which must all exist."""

    names = ("plamo2",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, _DEFAULTS)
        texts = zip(self.vocab.texts, self.vocab.types, strict=True)
        byte_of = {
            int(text[3:5], 16): i
            for i, (text, type_) in enumerate(texts)
            if type_ == TokenType.BYTE and _BYTE.fullmatch(text)
        }
        missing = [b for b in range(256) if not byte_of.get(b)]
        if missing:
            raise TokenizerError(
                f"a PLaMo 2 vocabulary must have a token of type BYTE for each byte, and not as"
                f" the first; <0x{missing[0]:02X}> is missing; convert the model again"
            )
        self._byte_ids = byte_of

    def encode(self, text: str) -> list[int]:
        """Encode a text; bytes that are not UTF-8 become U+FFFD, a leading U+FEFF is dropped."""
        text = decode_utf8(text).removeprefix("\ufeff")
        ends, tokens = self._segment(text)
        ids: list[int] = []
        at = 0
        while at < len(text):
            if tokens[at] < 0:
                ids += map(self._byte_ids.__getitem__, text[at].encode())
            else:
                ids.append(tokens[at])
            at = ends[at]
        return ids

    def piece(self, text: str, type: int) -> bytes:
        if type == TokenType.BYTE and _BYTE.fullmatch(text):
            return bytes.fromhex(text[3:5])
        return text.encode("utf-8", "surrogateescape")

    def _segment(self, text: str) -> tuple[list[int], list[int]]:
        """Find the end of the first token of the best segmentation from each position, and its id
        or -1."""
        root, scores, n = self._trie, self._scores, len(text)
        costs, ends, tokens = [0] * (n + 1), [0] * n, [-1] * n
        for at in iterate_checked(range(n - 1, -1, -1)):
            best, end, token = costs[at + 1] - _UNKNOWN, at + 1, -1
            for stop, id in matches(root, text, at):
                cost = costs[stop] - scores[id]
                if cost <= best:  # prefer the longest if equal
                    best, end, token = cost, stop, id
            costs[at], ends[at], tokens[at] = best, end, token
        return ends, tokens

    @cached_property
    def _trie(self) -> Trie:
        items = enumerate(zip(self.vocab.texts, self.vocab.types, strict=True))
        return trie(
            (text, i)
            for i, (text, type_) in items
            if type_ != TokenType.BYTE and self._scores[i] > _INVALID
        )

    @cached_property
    def _scores(self) -> list[int]:
        with np.errstate(over="ignore"):  # values outside f32 become infinite
            scores = np.array(self.vocab.scores, np.float64).astype(np.float32)
        return [_round(score * 1e4) for score in scores.tolist()]


def _round(value: float) -> int:
    """Round halves away from zero; NaN and infinity become the lowest score."""
    if not math.isfinite(value):
        return _INVALID
    return int(math.copysign(math.floor(abs(value) + 0.5), value))

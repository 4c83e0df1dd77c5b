"""DRY's sequence breakers, which end a repetition, as tokens
(llama-sampler.cpp:get_overlapping_token_sequences)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer import Tokenizer

# Tokens after the first token of a breaker, by that token; () if it includes the whole breaker.
Breakers: TypeAlias = Mapping[int, Sequence[tuple[int, ...]]]

_MAX_BYTES = 40
_MAX_TAIL = 20


def find_breakers(texts: Sequence[str], tokenizer: Tokenizer) -> Breakers:
    """Return every token that contains a text, or ends with the start of a text."""
    found: dict[int, list[tuple[int, ...]]] = {}
    wanted = [text.encode("utf-8", "surrogateescape")[:_MAX_BYTES] for text in texts if text]
    space = b" " if tokenizer.vocab.add_space_prefix else b""
    for id, piece in iterate_checked(enumerate(tokenizer.pieces)):
        word = piece.removeprefix(space)
        for text in wanted:
            if text[:1] not in word:
                continue
            for tail in iterate_checked(_tails(text, word, tokenizer)):
                tails = found.setdefault(id, [])
                if tail not in tails:
                    tails.append(tail)
    return found


def _tails(text: bytes, word: bytes, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    """Yield the token sequences that must follow `word` to complete `text`."""
    if text in word:
        yield ()
        return
    for n in range(1, len(text)):
        if word.endswith(text[:n]):
            rest = text[n:].decode("utf-8", "surrogateescape")
            yield tuple(tokenizer.tokenize(rest, False, False)[:_MAX_TAIL])

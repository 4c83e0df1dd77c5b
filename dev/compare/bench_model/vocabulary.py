"""Tokenizer of a benchmark model: copied from a GGUF file, or synthetic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from gguf import TokenType
from tokenizers.pre_tokenizers import ByteLevel

from dev.compare.bench_model.spec import Value
from llama_py.gguf.file import GGUFFile

TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and their types by id, and the other tokenizer keys of the file."""

    tokens: list[str]
    types: list[int]
    other: dict[str, Value]

    def keys(self) -> dict[str, Value]:
        return {**self.other, TOKENS: self.tokens, TYPES: self.types}

    def filled(self, n_vocab: int) -> Vocabulary:
        """Return the vocabulary with unused tokens at its end, up to `n_vocab`."""
        missing = range(len(self.tokens), n_vocab)
        padding = [f"[PAD{i}]" for i in missing]
        unused = [int(TokenType.UNUSED)] * len(missing)
        return Vocabulary(self.tokens + padding, self.types + unused, self.other)


def copied(path: Path, n_vocab: int) -> Vocabulary:
    """Return the tokenizer of the GGUF file at `path`, padded to `n_vocab` tokens."""
    with GGUFFile.open(path) as file:
        found = {k: v for k, v in file.metadata.items() if k.startswith("tokenizer.")}
    tokens, types = found.pop(TOKENS, None), found.pop(TYPES, None)
    if not isinstance(tokens, list) or not isinstance(types, np.ndarray):
        raise ValueError(f"{path}: has no vocabulary; use another --vocab")
    if not 0 < len(tokens) == len(types) <= n_vocab:
        raise ValueError(
            f"{path}: has {len(tokens)} tokens and {len(types)} token types; the numbers must "
            f"be equal, and from 1 to {n_vocab}; use another --vocab or --n-vocab"
        )
    other = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}
    return Vocabulary(tokens, types.tolist(), other).filled(n_vocab)


def synthetic(n_vocab: int) -> Vocabulary:
    """Return a vocabulary of bytes, pairs of lower-case letters, an end token and unused tokens."""
    pairs = [a + b for a in ascii_lowercase for b in ascii_lowercase]
    tokens = [*sorted(ByteLevel.alphabet()), *pairs, "<|endoftext|>"]
    if n_vocab < len(tokens):
        raise ValueError(f"{n_vocab} tokens are too few; set --n-vocab to at least {len(tokens)}")
    end = len(tokens) - 1
    other: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.merges": [" ".join(pair) for pair in pairs],
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
    }
    types = [int(TokenType.NORMAL)] * end + [int(TokenType.CONTROL)]
    return Vocabulary(tokens, types, other).filled(n_vocab)

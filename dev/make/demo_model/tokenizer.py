"""Byte-level BPE with the pre-tokenizer that GGUF files call `qwen35`."""

from __future__ import annotations

import json
from dataclasses import dataclass

import tokenizers as tk

PRE_NAME = "qwen35"
PRE_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT = "<|endoftext|>"


def train(text: str, n_vocab: int) -> tk.Tokenizer:
    """Learn `n_vocab` tokens from `text`: 256 bytes, merges, and `<|endoftext|>` as the last id."""
    byte_level = tk.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = tk.pre_tokenizers.Split(tk.Regex(PRE_REGEX), "isolated")
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=n_vocab - 1, initial_alphabet=sorted(byte_level.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    if tokenizer.get_vocab_size() != n_vocab:
        raise ValueError(
            f"the text yields {tokenizer.get_vocab_size()} tokens instead of {n_vocab}; "
            "give a longer text"
        )
    return tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as a GGUF file stores it: tokens by id, merges as "left right", the last id."""

    tokens: list[str]
    merges: list[str]
    end_of_text: int


def vocabulary(tokenizer: tk.Tokenizer) -> Vocabulary:
    """Return the parts of a trained tokenizer for the file."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    ids = tokenizer.get_vocab()
    return Vocabulary(
        tokens=sorted(ids, key=ids.__getitem__),
        merges=[" ".join(pair) for pair in merges],
        end_of_text=ids[END_OF_TEXT],
    )

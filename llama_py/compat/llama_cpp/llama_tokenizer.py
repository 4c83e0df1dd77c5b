"""Tokenizers with llama-cpp-python's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from llama_py.tokenizer import Tokenizer, load_tokenizer

__all__ = ["BaseLlamaTokenizer", "LlamaHFTokenizer", "LlamaTokenizer"]


class HasVocabulary(Protocol):
    """Interface of `Llama` for its tokenizer."""

    @property
    def vocabulary(self) -> Tokenizer: ...


class BaseLlamaTokenizer(ABC):
    """Conversion between UTF-8 bytes and tokens."""

    @abstractmethod
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text; special: find the texts of control tokens."""

    @abstractmethod
    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the text of tokens after `prev_tokens`; special: show control tokens."""


class LlamaTokenizer(BaseLlamaTokenizer):
    """Tokenizer of a model's file."""

    def __init__(self, llama: HasVocabulary) -> None:
        """Use the vocabulary of a `Llama`."""
        self._vocabulary = llama.vocabulary

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text; bytes that are not UTF-8 are tokenized as bytes.

        add_bos  add the special tokens that the model uses at the start and end of a text
        special  find the texts of control tokens
        """
        return self._vocabulary.tokenize(text.decode("utf-8", "surrogateescape"), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the text of tokens; a space after a BOS is removed. `prev_tokens` has no effect.

        special  show control tokens
        """
        text = b"".join(self._vocabulary.token_to_piece(int(id), special) for id in tokens)
        begins = len(tokens) > 0 and tokens[0] == self._vocabulary.bos
        return text.removeprefix(b" ") if begins else text

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text; see `tokenize`."""
        return self.tokenize(text.encode("utf-8", "ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without incomplete characters."""
        return self.detokenize(tokens).decode("utf-8", "ignore")

    @classmethod
    def from_ggml_file(cls, path: str) -> LlamaTokenizer:
        """Return the tokenizer of a GGUF file, without loading its weights."""
        made = cls.__new__(cls)
        made._vocabulary = load_tokenizer(path)
        return made


class LlamaHFTokenizer(BaseLlamaTokenizer):
    """Tokenizer of the `transformers` library."""

    def __init__(self, hf_tokenizer: Any) -> None:
        """Use a tokenizer of `transformers`."""
        self.hf_tokenizer = hf_tokenizer

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text; special: add the special tokens of the tokenizer."""
        ids = self.hf_tokenizer.encode(text.decode("utf-8", "ignore"), add_special_tokens=special)
        return [int(id) for id in ids]

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the text of tokens after `prev_tokens`; special: show special tokens."""
        before = list(prev_tokens or ())
        whole, start = (
            self.hf_tokenizer.decode(ids, skip_special_tokens=not special).encode("utf-8", "ignore")
            for ids in ([*before, *tokens], before)
        )
        return bytes(whole[len(start) if before else 0 :])

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str) -> LlamaHFTokenizer:
        """Load a tokenizer with `transformers.AutoTokenizer`."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(pretrained_model_name_or_path))

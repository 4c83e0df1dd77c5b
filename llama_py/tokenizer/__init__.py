"""Text to token ids and back, as llama.cpp does it, from the metadata of a GGUF file.

    tokenizer = Tokenizer.from_metadata(file.metadata)
    ids = tokenizer.tokenize("Hello")
    text = tokenizer.detokenize(ids)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.bpe import BytePairs
from llama_py.tokenizer.no_text import NoText
from llama_py.tokenizer.special import Special, classify, partition, special_tokens
from llama_py.tokenizer.spm import ScoredPieces
from llama_py.tokenizer.vocab import PREFIX, TokenType, Vocab

__all__ = ["TextModel", "TokenType", "Tokenizer"]


class TextModel(Protocol):
    """What differs between tokenizer models: plain text (no special tokens) to ids, and back."""

    @property
    def vocab(self) -> Vocab: ...

    def encode(self, text: str) -> list[int]: ...

    def piece(self, text: str) -> bytes: ...


_MODELS: Mapping[str, Callable[[Mapping[str, Any]], TextModel]] = {
    "gpt2": BytePairs,
    "llama": ScoredPieces,
    "test": NoText,
    "none": NoText,
    "no_vocab": NoText,
}


class Tokenizer:
    """A vocabulary and the way texts are cut into its tokens. Made by `Tokenizer.from_metadata`.

    `bos` and `eos` are None where the file gives none. Bytes of a text that are not UTF-8 are lone
    surrogates (`surrogateescape`), as in Python's own file names and arguments.
    """

    def __init__(self, model: TextModel, meta: Mapping[str, Any]) -> None:
        self._model = model
        self._meta = meta
        self.vocab = model.vocab
        self.types, self.eog = classify(model.vocab)

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> Tokenizer:
        """Raises TokenizerError for a kind of tokenizer that is not known, or is broken."""
        name = str(meta.get(PREFIX + "model"))
        if name not in _MODELS:
            raise TokenizerError(
                f"{PREFIX}model is {name!r}, which is not known; known: {', '.join(_MODELS)}"
            )
        return cls(_MODELS[name](meta), meta)

    @property
    def vocab_size(self) -> int:
        return len(self.vocab.texts)

    @property
    def bos(self) -> int | None:
        return self.vocab.special_ids.get("bos")

    @property
    def eos(self) -> int | None:
        return self.vocab.special_ids.get("eos")

    @property
    def add_bos(self) -> bool:
        """Whether `tokenize` puts BOS first."""
        return self.vocab.add_bos

    @property
    def add_eos(self) -> bool:
        """Whether `tokenize` puts EOS last."""
        return self.vocab.add_eos

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, for `llama_py.chat.ChatTemplate`."""
        source = self._meta.get("tokenizer.chat_template")
        return source if isinstance(source, str) else None

    def is_eog(self, id: int) -> bool:
        """Whether generation ends with this token: EOS, and all that llama.cpp takes for an end."""
        return id in self.eog

    def is_control(self, id: int) -> bool:
        """Whether the token is a marker, and no part of the text."""
        return self._type(id) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def tokenize(
        self, text: str, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text (llama-vocab.cpp:impl::tokenize).

        `add_special` adds BOS and EOS where the model wants them. Without `parse_special` the texts
        of control tokens are plain text; user-defined tokens are found either way.
        """
        ids: list[int] = []
        if add_special and self.add_bos and self.bos is not None:
            ids.append(self.bos)
        starts_word = self.vocab.add_space_prefix
        for part in partition(text, self._specials if parse_special else self._user_defined):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._model.encode(" " + part if starts_word else part)
            starts_word = self.vocab.add_space_prefix and isinstance(part, int)
        if add_special and self.add_eos and self.eos is not None:
            ids.append(self.eos)
        return ids

    def token_to_piece(self, id: int, special: bool = False) -> bytes:
        """The bytes a token adds to a text; none for a control token, unless `special`.

        Raises TokenizerError for an id outside the vocabulary.
        """
        type_, text = self._type(id), self.vocab.texts[id]
        if type_ in (TokenType.CONTROL, TokenType.UNKNOWN) and not special:
            return b""
        if type_ in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
            return text.encode("utf-8", "surrogateescape")
        if type_ == TokenType.NORMAL:
            return self._model.piece(text)
        if type_ == TokenType.BYTE:
            return _byte(text)
        return b""

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for, control tokens included."""
        return self.token_to_piece(id, special=True)

    def detokenize(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of ids. Bytes that are not UTF-8 become U+FFFD.

        The space that `tokenize` puts before a text is taken off. Nothing else is "cleaned up",
        unlike in llama.cpp, so text -> ids -> text gives the same text.
        """
        data = b"".join(self.token_to_piece(i, special) for i in ids)
        if self.vocab.add_space_prefix:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def _type(self, id: int) -> int:
        if not 0 <= id < self.vocab_size:
            raise TokenizerError(f"token {id} is outside the vocabulary, 0..{self.vocab_size - 1}")
        return self.types[id]

    @cached_property
    def _specials(self) -> list[Special]:
        return special_tokens(self._meta, self.vocab, self.types)

    @cached_property
    def _user_defined(self) -> list[Special]:
        return [s for s in self._specials if s.type == TokenType.USER_DEFINED]


def _byte(text: str) -> bytes:
    """`<0x0A>` -> b"\\n"."""
    try:
        return bytes.fromhex(text[3:5])
    except ValueError:
        raise TokenizerError(f"token {text!r} has type BYTE, so it must look like <0x0A>") from None

"""Tokenization like llama.cpp's, from the metadata of a GGUF file.

    tokenizer = llama_py.load_tokenizer("model.gguf")
    ids = tokenizer.tokenize("Hello")
    text = tokenizer.detokenize(ids)

It reads the metadata only, so a file without weights is sufficient.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from ggml_py._moved import Former
from ggml_py.errors import TokenizerError
from llama_py.gguf.file import GGUFFile
from llama_py.support.stopping import check_stopped
from llama_py.tokenizer.cleaned import clean_up_spaces
from llama_py.tokenizer.models import text_model
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.special import Special, classify, partition, special_tokens
from llama_py.tokenizer.vocab import PREFIX, TokenType

__all__ = ["TokenType", "Tokenizer", "load_tokenizer"]


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a GGUF file.

    The file may be of an architecture that is not known, or have a vocabulary and no weights.
    Raises GGUFError or TokenizerError.
    """
    with GGUFFile.open(path) as file:
        return Tokenizer.from_metadata(file.metadata)


class Tokenizer:
    """A vocabulary and the conversion of texts to its tokens. Created by `load_tokenizer`.

    `special_ids` maps names (`bos`, `eos`, `eot`, `eom`, `unk`, `sep`, `pad`, `mask`, `fim_pre`,
    ...) to the ids that the file has; `eog` are the ids that end generation. Bytes that are not
    UTF-8 are lone surrogates (`surrogateescape`), like in Python's file names and arguments.
    """

    def __init__(self, model: TextModel, meta: Mapping[str, Any]) -> None:
        self._model = model
        self._meta = meta
        self.vocab = model.vocab
        self.types, self.special_ids, self.eog = classify(model.vocab)
        self._plain: dict[int, bytes] = {}  # cached pieces
        self._shown: dict[int, bytes] = {}

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> Tokenizer:
        """Create the tokenizer; TokenizerError if its type is unknown or broken."""
        return cls(text_model(meta), meta)

    @property
    def kind(self) -> str:
        """Name of the tokenizer model in the file."""
        return str(self._meta.get(PREFIX + "model"))

    @property
    def n_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.vocab.texts)

    @property
    def bos(self) -> int | None:
        """Id of the token that starts a text."""
        return self.special_ids.get("bos")

    @property
    def eos(self) -> int | None:
        """Id of the token that ends a text."""
        return self.special_ids.get("eos")

    @property
    def eot(self) -> int | None:
        """Id of the token that ends a turn of a conversation."""
        return self.special_ids.get("eot")

    @property
    def add_bos(self) -> bool:
        """True if `tokenize` adds BOS at the start."""
        return "bos" in self.vocab.first

    @property
    def add_eos(self) -> bool:
        """True if `tokenize` adds EOS at the end."""
        return "eos" in self.vocab.last

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, for `llama_py.chat.ChatTemplate`."""
        source = self._meta.get("tokenizer.chat_template")
        return source if isinstance(source, str) else None

    @property
    def tool_use_template(self) -> str | None:
        """The one in the file for conversations with tools, if that is another."""
        source = self._meta.get("tokenizer.chat_template.tool_use")
        return source if isinstance(source, str) else None

    def is_eog(self, id: int) -> bool:
        """Return True if generation ends with this token: EOS and llama.cpp's other end tokens."""
        return id in self.eog

    def is_control(self, id: int) -> bool:
        """Return True if the token is a marker, not part of the text."""
        return self._type(id) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def is_special(self, id: int) -> bool:
        """Return True for control and user-defined tokens, which are not ordinary text."""
        return self._type(id) in (TokenType.CONTROL, TokenType.USER_DEFINED)

    def tokenize(
        self, text: str, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Return the ids of a text (llama-vocab.cpp:impl::tokenize).

        `add_special` adds BOS, EOS and SEP if the model uses them. Without `parse_special`, the
        texts of control tokens are plain text; user-defined tokens are always found.
        """
        first, last = (self.vocab.first, self.vocab.last) if add_special else ((), ())
        ids = [self.special_ids[name] for name in first]
        for part in partition(text, self._specials if parse_special else self._user_defined):
            check_stopped()
            ids += [part] if isinstance(part, int) else self._model.encode(part)
        return ids + [self.special_ids[name] for name in last]

    def token_to_piece(self, id: int, special: bool = False) -> bytes:
        """Return the bytes of a token in a text; b"" for a control token, unless `special`.

        Raises TokenizerError for an id outside the vocabulary.
        """
        known = self._shown if special else self._plain
        piece = known.get(id)
        if piece is None:
            hidden = self.is_control(id) and not special
            piece = b"" if hidden else self._model.piece(self.vocab.texts[id], self._type(id))
            known[id] = piece
        return piece

    def token_bytes(self, id: int) -> bytes:
        """Return the bytes of a token, including control tokens."""
        return self.token_to_piece(id, special=True)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of every token, control tokens included."""
        return [self.token_bytes(id) for id in range(self.n_vocab)]

    @property
    def suppress_tokens(self) -> list[int]:
        """Tokens that must not be generated, as listed in the file (`suppress_tokens`)."""
        ids = self._meta.get(PREFIX + "suppress_tokens", ())
        return [int(id) for id in ids if 0 <= id < self.n_vocab]

    def detokenize(
        self,
        ids: Iterable[int],
        special: bool = False,
        *,
        remove_special: bool = False,
        clean_spaces: bool | None = None,
    ) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD.

        special         show control tokens
        remove_special  omit the BOS and the EOS that `tokenize` adds
        clean_spaces    remove spaces before punctuation, if the tokenizer model does that, like
                        llama.cpp; False: keep them, so that text -> ids -> text gives the same text
                        if the tokenizer model preserves texts. None: True for WordPiece, which adds
                        these spaces, False for others

        The space that `tokenize` adds before a text is removed, also (unlike in llama.cpp) after a
        BOS.
        """
        ids, vocab = list(ids), self.vocab
        if remove_special and ids and self.add_bos and ids[0] == self.bos:
            del ids[0]
        if remove_special and ids and self.add_eos and ids[-1] == self.eos:
            del ids[-1]
        data = b"".join(self.token_to_piece(i, special) for i in ids)
        if vocab.add_space_prefix:
            data = data.removeprefix(b" ")
        if clean_spaces is None:
            clean_spaces = vocab.adds_spaces
        if clean_spaces and vocab.clean_spaces:
            data = clean_up_spaces(data)
        return data.decode("utf-8", "replace")

    def __repr__(self) -> str:
        kind, pre = (self._meta.get(PREFIX + key) for key in ("model", "pre"))
        return f"<Tokenizer {kind}{f' ({pre})' if pre else ''}, {self.n_vocab} tokens>"

    def _type(self, id: int) -> int:
        if not 0 <= id < self.n_vocab:
            raise TokenizerError(
                f"token must be in the vocabulary, 0..{self.n_vocab - 1}, got {id}"
            )
        return self.types[id]

    @cached_property
    def _specials(self) -> list[Special]:
        return special_tokens(self._meta, self.vocab, self.types)

    @cached_property
    def _user_defined(self) -> list[Special]:
        return [s for s in self._specials if s.type == TokenType.USER_DEFINED]

    suppressed = Former("suppress_tokens")

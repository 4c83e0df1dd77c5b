"""Vocabulary from the file's metadata: texts, types, scores and special ids."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import TokenizerError
from llama_py.gguf.keys import as_bool
from llama_py.gguf.metadata import describe

log = logging.getLogger("llama_py")

PREFIX = "tokenizer.ggml."

# Name here, and in the key `tokenizer.ggml.<stem>_token_id`. The last three keys are deprecated.
_SPECIAL_KEYS = (
    ("bos", "bos"),
    ("eos", "eos"),
    ("eot", "eot"),
    ("eom", "eom"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("mask", "mask"),
    ("fim_pre", "fim_pre"),
    ("fim_suf", "fim_suf"),
    ("fim_mid", "fim_mid"),
    ("fim_pad", "fim_pad"),
    ("fim_rep", "fim_rep"),
    ("fim_sep", "fim_sep"),
    ("fim_pre", "prefix"),
    ("fim_suf", "suffix"),
    ("fim_mid", "middle"),
)


class TokenType(IntEnum):
    """Token types of `tokenizer.ggml.token_type` (llama.h:llama_token_type)."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Defaults:
    """Defaults of a tokenizer model for missing keys (llama-vocab.cpp:impl::load).

    always_bos  a text starts with BOS, regardless of the file
    first, last special tokens around a text, if they do not depend on the file's flags
    """

    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    always_bos: bool = False
    add_space_prefix: bool = False
    clean_spaces: bool = False
    adds_spaces: bool = False
    first: tuple[str, ...] | None = None
    last: tuple[str, ...] | None = None
    special_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Vocab:
    """Texts are str; bytes that are not UTF-8 are lone surrogates (`surrogateescape`).

    `ids` is text to id. `special_ids` is name (`bos`, `eos`, `eot`, `unk`, `fim_pre`, ...) to id,
    without names that are missing in the file and the tokenizer model. `first` and `last` name the
    special tokens at the start and end of a text. `add_bos`, `add_eos` and `add_sep` are the file's
    flags, which also apply between two texts. `clean_spaces`: llama.cpp removes spaces before
    punctuation when it joins tokens. `adds_spaces`: tokens have such spaces although texts do
    not.
    """

    texts: list[str]
    types: list[int]
    scores: list[float]
    ids: dict[str, int]
    special_ids: dict[str, int]
    first: tuple[str, ...]
    last: tuple[str, ...]
    add_bos: bool
    add_eos: bool
    add_sep: bool
    add_space_prefix: bool
    clean_spaces: bool
    adds_spaces: bool

    @property
    def unk(self) -> int:
        """The id for text without a token; TokenizerError if it is missing."""
        if "unk" not in self.special_ids:
            raise TokenizerError(
                f"a part of the text has no token, and its replacement {PREFIX}unknown_token_id "
                "is missing; convert the model again"
            )
        return self.special_ids["unk"]

    def find_ids(self, texts: Iterable[str]) -> list[int]:
        """Return the ids of the texts that are tokens."""
        return [self.ids[text] for text in texts if text in self.ids]


def read_vocab(meta: Mapping[str, Any], defaults: Defaults) -> Vocab:
    """Read the vocabulary; TokenizerError for missing, short or contradictory keys."""
    texts = read_texts(meta)
    ids = {text: i for i, text in enumerate(texts)}
    if len(ids) != len(texts):
        first = next(text for i, text in enumerate(texts) if ids[text] != i)
        raise TokenizerError(
            f"{PREFIX}tokens: {len(texts)} tokens, but only {len(ids)} different strings; "
            f"{first!r} occurs again; convert the model again"
        )
    add_bos = flag(meta, "add_bos_token", defaults.add_bos) or defaults.always_bos
    add_eos = flag(meta, "add_eos_token", defaults.add_eos)
    vocab = Vocab(
        texts=texts,
        types=_numbers(meta, "token_type", len(texts), TokenType.NORMAL),
        scores=_numbers(meta, "scores", len(texts), 0.0),
        ids=ids,
        special_ids=_read_special_ids(meta, len(texts), defaults.special_ids),
        first=("bos",) * add_bos if defaults.first is None else defaults.first,
        last=("eos",) * add_eos if defaults.last is None else defaults.last,
        add_bos=add_bos,
        add_eos=add_eos,
        add_sep=flag(meta, "add_sep_token", defaults.add_sep),
        add_space_prefix=flag(meta, "add_space_prefix", defaults.add_space_prefix),
        clean_spaces=defaults.clean_spaces,
        adds_spaces=defaults.adds_spaces,
    )
    _check_ends(vocab)
    return vocab


def _check_ends(vocab: Vocab) -> None:
    for name in (*vocab.first, *vocab.last):
        if name not in vocab.special_ids:
            stem = dict(_SPECIAL_KEYS)[name]
            raise TokenizerError(
                f"{PREFIX}add_{name}_token is true, so texts get a {name.upper()} token, but "
                f"{PREFIX}{stem}_token_id is missing or out of range; set it, or set "
                f"{PREFIX}add_{name}_token to false"
            )


def read_texts(meta: Mapping[str, Any]) -> list[str]:
    """Return the tokens' texts; an empty one gets llama.cpp's placeholder."""
    texts = strings(meta, "tokens")
    return [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]


def strings(meta: Mapping[str, Any], name: str) -> list[str]:
    """Return the list of strings under `tokenizer.ggml.<name>`."""
    value = meta.get(PREFIX + name)
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        found = "missing" if value is None else f"a {type(value).__name__}"
        raise TokenizerError(
            f"{PREFIX}{name} must be a list of strings, got {found}; convert the model again"
        )
    return value


def flag(meta: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return the boolean under `tokenizer.ggml.<name>`, which may be 0 or 1."""
    found = as_bool(meta.get(PREFIX + name, default))
    if found is None:
        shown = describe(meta[PREFIX + name])
        raise TokenizerError(
            f"{PREFIX}{name} must be true or false, got {shown}; convert the model again"
        )
    return found


def to_array(value: Any) -> NDArray[Any]:
    """Return a file's value as an array; of objects if it is ragged."""
    try:
        return np.asarray(value)
    except ValueError:  # arrays of different lengths in an array
        return np.asarray(None)


def _numbers(meta: Mapping[str, Any], name: str, n: int, default: float) -> list[Any]:
    value = meta.get(PREFIX + name)
    if value is None:
        return [default] * n
    array = to_array(value)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or array.size < n:
        raise TokenizerError(
            f"{PREFIX}{name} must be {n} numbers, one per token, got {array.dtype} "
            f"{array.shape}; convert the model again"
        )
    numbers: list[Any] = array[:n].tolist()
    return numbers


def _read_special_ids(
    meta: Mapping[str, Any], n_vocab: int, defaults: Mapping[str, int]
) -> dict[str, int]:
    ids = {name: i for name, i in defaults.items() if i < n_vocab}
    for name, stem in _SPECIAL_KEYS:
        key = f"{PREFIX}{stem}_token_id"
        value = meta.get(key)
        if value is None:
            continue
        if isinstance(value, int) and 0 <= value < n_vocab:
            ids[name] = value
        else:
            log.warning(
                "%s must be in 0..%d, got %s; it is ignored", key, n_vocab - 1, describe(value)
            )
    return ids

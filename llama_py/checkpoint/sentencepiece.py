"""Pieces of a SentencePiece model, from its protocol buffer (sentencepiece_model.proto)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ggml_py.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of ModelProto
# Types of pieces; llama.cpp's token types have the same numbers.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2  # TrainerSpec.model_type


class TokenPiece(NamedTuple):
    """A token: its text, score and type."""

    text: bytes
    score: float
    type: int


class SentencePieceModel(NamedTuple):
    """pieces             tokens, by id
    model_type         UNIGRAM or BPE
    add_dummy_prefix   a text gets a space at its start
    remove_extra_whitespaces  spaces in a row count as one
    charsmap           precompiled map of the normalizer
    """

    pieces: list[TokenPiece]
    model_type: int
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    charsmap: bytes


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a tokenizer.model. Raises ModelError if it is not a SentencePiece model."""
    try:
        return _model(path.read_bytes())
    except OSError as e:
        raise ModelError(f"{path}: cannot be read: {e}") from None
    except (ValueError, IndexError, struct.error):
        raise ModelError(
            f"{path}: not a SentencePiece model; download it again (a Git LFS pointer is a text "
            "of three lines)"
        ) from None


def _model(data: bytes) -> SentencePieceModel:
    pieces = list[TokenPiece]()
    trainer, normalizer = dict[int, Any](), dict[int, Any]()
    for number, value in _fields(data):
        if number == PIECES:
            found = dict(_fields(value))
            (score,) = struct.unpack("<f", found.get(2, bytes(4)))
            pieces.append(TokenPiece(bytes(found.get(1, b"")), score, found.get(3, NORMAL)))
        elif number == TRAINER:
            trainer = dict(_fields(value))
        elif number == NORMALIZER:
            normalizer = dict(_fields(value))
    if not pieces:
        raise ValueError("no pieces")
    return SentencePieceModel(
        pieces,
        trainer.get(3, UNIGRAM),
        bool(normalizer.get(3, True)),
        bool(normalizer.get(4, True)),
        bytes(normalizer.get(2, b"")),
    )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: number, and an integer or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire, -1)
        if wire == BYTES:
            size, at = _varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError("a field exceeds its message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number has too many bytes")

"""Vocabularies of Unigram tokenizers, of T5 and XLM-RoBERTa, as keys `tokenizer.ggml.*`
(conversion/t5.py: T5Model.set_vocab, conversion/bert.py: _xlmroberta_set_vocab)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.sentencepiece import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    SentencePieceModel,
    TokenPiece,
    read_sentencepiece,
)
from llama_py.checkpoint.special_tokens import special_texts
from llama_py.checkpoint.vocabulary import LEAST_SCORE, Vocabulary

FAIRSEQ = [TokenPiece(b"<s>", 0.0, CONTROL), TokenPiece(b"<pad>", 0.0, CONTROL),
           TokenPiece(b"</s>", 0.0, CONTROL), TokenPiece(b"<unk>", 0.0, UNKNOWN)]  # fmt: skip
MASK = 250001  # id of <mask>, which the SentencePiece model of XLM-RoBERTa lacks
# Classes of tokenizers with add_prefix_space as the default
PREFIXED = ("XLMRoberta", "Camembert", "T5")
WRONG = "its Unigram tokenizer must have pieces with scores, and a precompiled charsmap"


def write_t5(v: Vocabulary) -> None:
    """Write the vocabulary of spiece.model or tokenizer.model, else of tokenizer.json.

    transformers 5 saves only the latter.
    """
    name = next((n for n in ("tokenizer.model", "spiece.model") if v.has(n)), None)
    if name is None:
        write_unigram_json(v)
        return
    model = read_sentencepiece(v.folder.path / name)
    if model.model_type != UNIGRAM:
        v.sentencepiece()
        return
    tokens, scores, types = v.add_tokens(model.pieces)
    v.write("t5", "default", tokens, types, scores)
    _write_normalizer(v, model)
    v.write_special(len(tokens))


def write_xlm_roberta(v: Vocabulary, type_count: Any, has_mask: bool) -> None:
    """Write the vocabulary of sentencepiece.bpe.model or tokenizer.json.

    type_count  rows of the embeddings of token types
    has_mask    the model knows a token <mask>
    """
    name = "sentencepiece.bpe.model"
    if not v.has(name):
        write_unigram_json(v, type_count)
        return
    model = read_sentencepiece(v.folder.path / name)
    if model.model_type != UNIGRAM:
        raise ModelError(
            f"{v.folder.path / name}: must be a Unigram model (type {UNIGRAM}), got type "
            f"{model.model_type}"
        )
    n = max(len(model.pieces), v.n_vocab if type(v.n_vocab) is int else 0)
    padding = [TokenPiece(f"[PAD{i}]".encode(), LEAST_SCORE, UNUSED)
               for i in range(len(model.pieces), n)]  # fmt: skip
    pieces = FAIRSEQ + [*model.pieces, *padding][3:-1]
    if has_mask and n > MASK:
        pieces[MASK] = TokenPiece(b"<mask>", 0.0, CONTROL)
    texts = [piece.text.decode("utf-8", "surrogateescape") for piece in pieces]
    types = [NORMAL if p.type == USER_DEFINED else p.type for p in pieces]
    v.write("t5", "default", texts, types, [piece.score for piece in pieces])
    _write_normalizer(v, model, type_count)
    v.write_special(len(pieces))


def write_unigram_json(v: Vocabulary, type_count: Any = None) -> None:
    """Write a Unigram vocabulary of tokenizer.json. Raises ModelError for another kind."""
    stored, config = v.folder.json("tokenizer.json"), v.folder.json("tokenizer_config.json")
    try:
        charsmap = next(_charsmaps(stored["normalizer"]), b"")
        found = [(str(text), float(score)) for text, score in stored["model"]["vocab"]]
        added = {token["content"]: token["id"] for token in stored["added_tokens"]}
    except (KeyError, TypeError, ValueError):
        path = v.folder.path / "tokenizer.json"
        raise ModelError(f"{path}: {WRONG}" if stored else f"{path}: no such file") from None
    n = max(len(found), v.n_vocab if type(v.n_vocab) is int else 0)
    named, texts = special_texts(v.folder), {text: i for i, (text, _) in enumerate(found)}
    special = {added.get(text, texts.get(text)) for text in named}
    unknown = added.get(_read_content(config.get("unk_token")), stored["model"].get("unk_id", 3))
    tokens = [text for text, _ in found] + [f"[PAD{i}]" for i in range(len(found), n)]
    scores = [score for _, score in found] + [LEAST_SCORE] * (n - len(found))
    defined = {*added.values()}
    types = [
        UNUSED if i >= len(found)
        else UNKNOWN if i == unknown
        else CONTROL if i in special
        else USER_DEFINED if i in defined
        else NORMAL
        for i in range(n)
    ]  # fmt: skip
    kind = str(config.get("tokenizer_class", ""))
    prefix = bool(config.get("add_prefix_space", kind.startswith(PREFIXED)))
    clean = bool(config.get("clean_up_tokenization_spaces", False))
    v.write("t5", "default", tokens, types, scores)
    _write_normalizer(v, SentencePieceModel([], UNIGRAM, prefix, clean, charsmap), type_count)
    v.write_special(n)


def _read_content(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _charsmaps(normalizer: Any) -> Iterator[bytes]:
    """Yield the precompiled maps of a normalizer and its parts."""
    if isinstance(normalizer, Mapping):
        if "precompiled_charsmap" in normalizer:
            yield base64.b64decode(normalizer["precompiled_charsmap"])
        for part in normalizer.get("normalizers", []):
            yield from _charsmaps(part)


def _write_normalizer(v: Vocabulary, model: SentencePieceModel, type_count: Any = None) -> None:
    out = v.out
    out.boolean("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix)
    if type_count is not None:
        out.u32("tokenizer.ggml.token_type_count", type_count)
    out.boolean("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces)
    if model.charsmap:
        out.add("arr[u8]", "tokenizer.ggml.precompiled_charsmap", model.charsmap)

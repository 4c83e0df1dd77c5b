"""Tokenizer files of Hugging Face from the keys of a GGUF file."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from ggml_py.errors import ModelError
from llama_py.checkpoint.sentencepiece import BPE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED
from llama_py.checkpoint.special_tokens import ID_KEYS
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.vocabulary import ADDED_SCORE, PROBE, SPACE
from llama_py.tokenizer.cuts import Kinds, PatternCut
from llama_py.tokenizer.pre import PRE_TOKENIZERS, PreTokenizer

log = logging.getLogger("llama_py")

Files = dict[str, bytes]
PREFIX = "tokenizer.ggml."
# Categories of llama.cpp's patterns that the original patterns split further.
CATEGORIES = {r"\p{U}": r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}", r"\p{W}": r"\p{Ll}\p{Lm}\p{Lo}"}
BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
ROLES = ("bos", "eos", "unk", "sep", "pad", "mask")


class StoredTokens:
    """Tokens of a file.

    texts, types   by id
    ids            by role
    """

    def __init__(self, model: StoredModel) -> None:
        self.model = model
        self.kind = model.get(f"{PREFIX}model")
        self.texts: list[str] = model.get(f"{PREFIX}tokens", [])
        self.types: list[int] = model.get(f"{PREFIX}token_type", [1] * len(self.texts))
        found = {role: model.get(f"{PREFIX}{ID_KEYS[role]}_token_id") for role in ROLES}
        self.ids = {role: i for role, i in found.items() if i is not None and i < len(self.texts)}

    def list_added(self) -> Iterator[tuple[int, str, bool]]:
        """Yield tokens that are found before the text is split: id, text, special."""
        for i, (text, type) in enumerate(zip(self.texts, self.types, strict=True)):
            if type in (CONTROL, UNKNOWN, USER_DEFINED):
                yield i, text, type != USER_DEFINED

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Ids by text, without tokens that only fill the vocabulary."""
        return {
            text: i
            for i, (text, type) in enumerate(zip(self.texts, self.types, strict=True))
            if type != UNUSED or text != f"[PAD{i}]"
        }

    def adds(self, role: str, default: bool) -> bool:
        """Return True if tokenizing adds bos or eos."""
        return role in self.ids and bool(self.model.get(f"{PREFIX}add_{role}_token", default))


def tokenizer_files(model: StoredModel, nfc: bool) -> Files:
    """Return the tokenizer's files by name; nfc: texts are normalized to NFC.

    Raises ModelError for an unknown pre-tokenizer. Without tokens, or for a kind of tokenizer
    that cannot be exported, no files; the latter with a warning.
    """
    tokens = StoredTokens(model)
    if tokens.kind in (None, "none"):
        return {}
    write = WRITERS.get(tokens.kind)
    if write is None:
        log.warning(
            "tokenizers of type %s cannot be exported; copy the files of the original model",
            tokens.kind,
        )
        return {}
    return {**write(tokens, nfc), **_templates(model)}


def _byte_level(tokens: StoredTokens, nfc: bool) -> Files:
    """Return a byte-level BPE as tokenizer.json."""
    name = tokens.model.get(f"{PREFIX}pre", "default")
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        raise ModelError(
            f"the pre-tokenizer {name!r} is unknown, so it cannot be exported; update llama-py"
        )
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in _patterns(pre)
    ]
    byte_level = {"type": "ByteLevel", **BYTE_LEVEL}
    steps.append(byte_level)
    found = {
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": _post_processor(tokens, pre.add_bos, [byte_level]),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignore_merges,
            "vocab": tokens.vocab,
            "merges": [merge.split(" ", 1) for merge in tokens.model.get(f"{PREFIX}merges", [])],
        },
    }
    text = _tokenizer_json(tokens, found)
    _check_splits(text, name, pre)
    return {"tokenizer.json": text, "tokenizer_config.json": _config(tokens, pre.add_bos)}


def _patterns(pre: PreTokenizer) -> Iterator[str]:
    """Yield the patterns of a pre-tokenizer, in the syntax of tokenizers."""
    for cut in pre.cuts:
        if type(cut) not in (Kinds, PatternCut):
            yield r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"  # three digits from the right
            continue
        pattern = cut.pattern
        for short, whole in CATEGORIES.items():
            pattern = pattern.replace(short, whole)
        yield pattern.replace(r"\Z", r"\z")


def _check_splits(text: bytes, name: str, pre: PreTokenizer) -> None:
    """Warn if the exported pre-tokenizer splits a text otherwise."""
    made = Tokenizer.from_str(text.decode()).pre_tokenizer
    found = [PROBE[a:b] for _, (a, b) in made.pre_tokenize_str(PROBE)]
    if found != pre.split(PROBE):
        log.warning("the pre-tokenizer %s is only approximated in tokenizer.json", name)


def _sentencepiece(tokens: StoredTokens, nfc: bool) -> Files:
    """Return a BPE of SentencePiece as tokenizer.model and tokenizer.json."""
    scores = tokens.model.get(f"{PREFIX}scores", [0.0] * len(tokens.texts))
    has_prefix = bool(tokens.model.get(f"{PREFIX}add_space_prefix", True))
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = [{"type": "Prepend", "prepend": SPACE}] if has_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    spaces = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    bytes_ = [{"type": "ByteFallback"}, {"type": "Fuse"}]
    kinds = dict(zip(tokens.types, tokens.texts, strict=True))
    found = {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "post_processor": _post_processor(tokens, True, []),
        "decoder": {"type": "Sequence", "decoders": [spaces, *bytes_, *strip]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": kinds.get(UNKNOWN),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": tokens.vocab,
            "merges": merges_by_score(tokens.vocab, scores),
        },
    }
    named = {
        i: {"content": text, "special": is_special}
        for i, text, is_special in tokens.list_added()
        if scores[i] == ADDED_SCORE or not is_special
    }
    more: dict[str, Any] = {"added_tokens_decoder": named} if named else {}
    if (prefix := tokens.model.get(f"{PREFIX}add_space_prefix")) is not None:
        more["add_prefix_space"] = prefix
    return {
        "tokenizer.json": _tokenizer_json(tokens, found),
        "tokenizer.model": _pieces(tokens, scores, has_prefix),
        "tokenizer_config.json": _config(tokens, True, more),
    }


def merges_by_score(vocab: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return the merges that join tokens in the order of SentencePiece: by falling score."""
    found = list[tuple[float, int, int, int, str, str]]()
    for text, i in vocab.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[i], i, vocab[left], vocab[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _pieces(tokens: StoredTokens, scores: Sequence[float], has_prefix: bool) -> bytes:
    """Return a SentencePiece model (sentencepiece_model.proto)."""
    last = max(tokens.vocab.values(), default=-1)
    out = list[bytes]()
    for text, score, type in zip(tokens.texts[: last + 1], scores, tokens.types, strict=False):
        raw = text.encode("utf-8", "surrogateescape")
        piece = _field(1, raw) + b"\x15" + struct.pack("<f", score) + _number(3, type)
        out.append(_field(1, piece))
    ids = {40: "unk", 41: "bos", 42: "eos", 43: "pad"}
    trainer = _number(3, BPE) + _number(4, last + 1) + _number(35, 1)
    trainer += b"".join(_number(n, tokens.ids.get(role, -1)) for n, role in ids.items())
    normalizer = _field(1, b"identity") + _number(3, int(has_prefix)) + _number(4, 0)
    return b"".join(out) + _field(2, trainer) + _field(3, normalizer + _number(5, 1))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value % 2**64)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def _tokenizer_json(tokens: StoredTokens, parts: Mapping[str, Any]) -> bytes:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": i, "content": text, **flags, "special": is_special}
        for i, text, is_special in tokens.list_added()
    ]
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}
    return json.dumps(whole, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _post_processor(
    tokens: StoredTokens, adds_bos: bool, steps: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return a processor that adds bos and eos after `steps`."""
    roles = [r for r, default in (("bos", adds_bos), ("eos", False)) if tokens.adds(r, default)]
    if not roles:
        return steps[0] if steps else None
    texts = {role: tokens.texts[tokens.ids[role]] for role in roles}

    def build(name: str, type: int) -> list[dict[str, Any]]:
        special = {r: {"SpecialToken": {"id": t, "type_id": type}} for r, t in texts.items()}
        middle = {"Sequence": {"id": name, "type_id": type}}
        return [*_one(special, "bos"), middle, *_one(special, "eos")]

    named = {
        text: {"id": text, "ids": [tokens.ids[role]], "tokens": [text]}
        for role, text in texts.items()
    }
    single = build("A", 0)
    made: dict[str, Any] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + build("B", 1),
    }
    made["special_tokens"] = named
    return {"type": "Sequence", "processors": [*steps, made]} if steps else made


def _one(found: Mapping[str, dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [found[role]] if role in found else []


def _config(tokens: StoredTokens, adds_bos: bool, more: Mapping[str, Any] | None = None) -> bytes:
    """Return tokenizer_config.json, with the texts of the roles."""
    found: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": tokens.texts[i] for role, i in tokens.ids.items()},
    }
    for role, default in (("bos", adds_bos), ("eos", False)):
        if tokens.model.get(f"{PREFIX}add_{role}_token") is not None or default:
            found[f"add_{role}_token"] = tokens.adds(role, default)
    return json.dumps({**found, **(more or {})}, indent=2, ensure_ascii=False).encode()


def _templates(model: StoredModel) -> Files:
    """Return the chat templates."""
    found, default = Files(), model.get("tokenizer.chat_template")
    if default is None:
        return found
    found["chat_template.jinja"] = default.encode()
    for name in model.get("tokenizer.chat_templates", []):
        text = model.get(f"tokenizer.chat_template.{name}")
        if text is not None and name.isidentifier():
            found[f"additional_chat_templates/{name}.jinja"] = text.encode()
    return found


WRITERS: Mapping[str, Callable[[StoredTokens, bool], Files]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
}

"""Vocabularies in other files: RWKV and PLaMo (conversion/base.py)."""

from __future__ import annotations

import json
from ast import literal_eval
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import ADDED_SCORE, Vocabulary

RWKV, RWKV_SIZE, RWKV_END = "rwkv_vocab_v20230424.txt", 65536, 261  # two line breaks end a turn
PLAMO, PLAMO_END = "tokenizer.jsonl", 4  # <|plamo:op|>
TYPES = {"UNKNOWN": UNKNOWN, "CONTROL": CONTROL, "BYTE": BYTE}
ROLES = {"bos": "bos", "eos": "eos", "pad": "padding", "sep": "seperator", "unk": "unknown"}


def rwkv_vocabulary(v: Vocabulary) -> None:
    """Write RWKV's tokens: lines of an id, a literal of Python, and its length.

    Raises ModelError if the file is missing or invalid.
    """
    tokens = ["<s>"]
    for line in _lines(v, RWKV):
        try:
            token = literal_eval(line[line.index(" ") + 1 : line.rindex(" ")])
            stored = token.encode() if isinstance(token, str) else bytes(token)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise _invalid(v, RWKV, line) from None
        tokens.append(repr(stored)[2:-1])
    n = len(tokens)
    n_vocab = v.check_size(n, RWKV_SIZE)
    tokens += [f"[PAD{i}]" for i in range(n, n_vocab)]
    v.out.text("tokenizer.ggml.model", "rwkv")
    v.out.array("tokenizer.ggml.tokens", tokens)
    kinds = [CONTROL, *[NORMAL] * (n - 1), *[UNUSED] * (n_vocab - n)]
    v.out.array("tokenizer.ggml.token_type", kinds)
    special = SpecialTokens(v.folder)
    special.template = special.template or "rwkv-world"
    special.set("eot", RWKV_END)
    special.ids |= {"bos": 0, "eos": 0}
    special.write(v.out)


def plamo_vocabulary(v: Vocabulary) -> None:
    """Write PLaMo's tokens: lines of a list of text, score and type.

    Raises ModelError if the file is missing or invalid.
    """
    tokens, scores, kinds = list[str](), list[float](), list[int]()
    for line in _lines(v, PLAMO):
        try:
            text, score, *more = json.loads(line)
            tokens.append(str(text))
            scores.append(float(score))
        except (ValueError, TypeError, RecursionError):
            raise _invalid(v, PLAMO, line) from None
        is_special = str(text).startswith("<|plamo:") and str(text).endswith("|>")
        other = CONTROL if is_special else NORMAL
        kinds.append(TYPES.get(str(more[0]), other) if more else NORMAL)
    missing = max(v.check_size(0, len(tokens)) - len(tokens), 0)
    tokens += [f"[PAD{i + 1}]" for i in range(missing)]
    v.write(
        "plamo2", "default", tokens, kinds + [UNUSED] * missing, scores + [ADDED_SCORE] * missing
    )
    config = v.folder.json("tokenizer_config.json")
    for role, key in ROLES.items():
        if (text := config.get(f"{role}_token")) is None:
            continue
        if text not in tokens:
            raise ModelError(f"{v.folder.path}: {role}_token {str(text)[:50]!r} is not a token")
        v.out.u32(f"tokenizer.ggml.{key}_token_id", tokens.index(text))
    v.out.u32("tokenizer.ggml.eot_token_id", PLAMO_END)
    v.out.boolean("tokenizer.ggml.add_space_prefix", False)


def _lines(v: Vocabulary, name: str) -> list[str]:
    text = v.folder.text(name)
    if text is None:
        raise ModelError(f"{v.folder.path / name}: no such file; download the tokenizer's files")
    return [line for line in text.split("\n") if line.strip()]


def _invalid(v: Vocabulary, name: str, line: Any) -> ModelError:
    return ModelError(
        f"{v.folder.path / name}: not a line of tokens: {str(line)[:60]!r}; download the file again"
    )

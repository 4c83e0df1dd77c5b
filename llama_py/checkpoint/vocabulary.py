"""Vocabularies of checkpoints as keys `tokenizer.ggml.*`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from ggml_py.errors import ModelError
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    TokenPiece,
    read_sentencepiece,
)
from llama_py.checkpoint.special_tokens import SpecialTokens, special_texts
from llama_py.tokenizer.pre import PRE_TOKENIZERS

log = logging.getLogger("llama_py")

DIGESTS = Path(__file__).parents[1] / "data" / "pre_tokenizers.txt"
SPACE = "\u2581"  # SentencePiece's sign of a space
LEAST_SCORE, ADDED_SCORE = -10000.0, -1000.0
# Tokens that some tokenizers do not mark as special: of deepseek-coder, gemma, command-r.
SPECIAL = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
BRACKETS = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
# The ids of this text identify a pre-tokenizer (convert_hf_to_gguf_update.py).
PROBE = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis "
    "concatenated) ✅ 🦙🦙 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 "
    "កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български "
    "''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not "
    "sure I'll make it, 'D you like some tea? We'Ve a'lL"
)


def looks_special(token: str) -> bool:
    """Return True for a text that only special tokens have."""
    return token in SPECIAL or any(
        token.startswith(start) and token.endswith(end) for start, end in BRACKETS
    )


class Vocabulary:
    """Tokens of a checkpoint, written to `out`.

    n_vocab  tokens of the model; the tokenizer may have fewer. None: as in the tokenizer
    pre      name of the pre-tokenizer; None: found by its ids
    """

    def __init__(
        self, folder: CheckpointFolder, out: KeyValues, n_vocab: Any, pre: str | None = None
    ) -> None:
        self.folder, self.out, self.n_vocab, self.pre = folder, out, n_vocab, pre

    def has(self, name: str) -> bool:
        """Return True if the folder has this file."""
        return self.folder.has(name)

    def write_none(self) -> None:
        """Write that the model has no tokens."""
        self.out.text("tokenizer.ggml.model", "none")

    def bpe(
        self,
        model: str = "gpt2",
        pre: str | None = None,
        roles: Mapping[str, str] | None = None,
        unchanged: bool = False,
    ) -> SpecialTokens:
        """Write a byte-level BPE of tokenizer.json (get_vocab_base, _set_vocab_gpt2).

        model      tokenizer.ggml.model;  pre  pre-tokenizer; None: found by its ids
        roles      tokens of roles that the tokenizer's files do not name
        unchanged  added tokens keep their texts and types

        Raises ModelError if the tokenizer does not have these tokens.
        """
        tokens, types, found = self.tokens_of_json(pre, unchanged)
        special = SpecialTokens(self.folder, with_merges=True)
        for role, text in (roles or {}).items():
            if text not in tokens:
                raise ModelError(
                    f"{self.folder.path}: the tokenizer lacks the token {text!r}, its {role}; "
                    "download the tokenizer's files again"
                )
            special.set(role, tokens.index(text))
        self.write(model, found, tokens, types)
        special.write(self.out)
        return special

    def tokens_of_json(
        self, pre: str | None = None, unchanged: bool = False
    ) -> tuple[list[str], list[int], str]:
        """Return the tokens of tokenizer.json, their types, and the pre-tokenizer's name."""
        tokenizer, named = self.tokenizer(), special_texts(self.folder)
        ids = tokenizer.get_vocab(with_added_tokens=True)
        n_vocab = self.check_size(max(ids.values(), default=-1) + 1, len(ids))
        texts, added = {id: text for text, id in ids.items()}, tokenizer.get_added_tokens_decoder()
        pre = self.pre or pre or pre_tokenizer(self.folder, tokenizer)
        tokens, types = list[str](), list[int]()
        for id in range(n_vocab):
            text, token = texts.get(id, f"[PAD{id}]"), added.get(id)
            type = UNUSED if id not in texts else NORMAL
            if token is not None and unchanged:
                is_special = token.special or token.content in named
                type = CONTROL if is_special else USER_DEFINED
            elif token is not None:
                if not token.normalized:
                    own = tokenizer.encode(text, add_special_tokens=False).ids
                    text = tokenizer.decode(own, skip_special_tokens=False)
                is_special = token.special or token.content in named or looks_special(text)
                type = CONTROL if is_special else USER_DEFINED
                text = text if is_special else text.replace(SPACE, " ")
            tokens.append(text)
            types.append(type)
        return tokens, types, pre

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of tokenizer.json, with special tokens that only
        tokenizer_config.json has, as transformers adds them.

        Raises ModelError if it is missing or invalid.
        """
        path = self.folder.path / "tokenizer.json"
        text = self.folder.text("tokenizer.json")
        if text is None:
            raise ModelError(f"{path}: no such file; download the tokenizer's files as well")
        try:
            found = Tokenizer.from_str(text)
        except Exception as e:  # the library raises only Exception
            raise ModelError(f"{path}: not a tokenizer: {e}; download it again") from None
        added = {token.content for token in found.get_added_tokens_decoder().values()}
        missing = [text for text in special_texts(self.folder) if text not in added]
        found.add_special_tokens([AddedToken(text, special=True) for text in missing])
        found.no_truncation()  # of sentence-transformers
        found.no_padding()
        return found

    def sentencepiece(self) -> SpecialTokens:
        """Write the vocabulary of tokenizer.model (_set_vocab_sentencepiece)."""
        tokens, scores, types = self.pieces()
        self.write("llama", "default", tokens, types, scores)
        return self.write_special(len(tokens))

    def pieces(self, with_added: bool = True) -> tuple[list[str], list[float], list[int]]:
        """Return the tokens of tokenizer.model, their scores and types, and added tokens."""
        found = read_sentencepiece(self.folder.path / "tokenizer.model").pieces
        tokens, scores, types = self.add_tokens(found, with_added)
        for id, token in self.added_tokens() if with_added else ():
            if 0 <= id < len(tokens):
                text = token["content"]
                is_special = token.get("special") or looks_special(text)
                types[id] = CONTROL if is_special else USER_DEFINED
                tokens[id] = text if is_special else text.replace(SPACE, " ")
                scores[id] = ADDED_SCORE
        return tokens, scores, types

    def add_tokens(
        self, found: Sequence[TokenPiece], with_added: bool = True
    ) -> tuple[list[str], list[float], list[int]]:
        """Return pieces as tokens, scores and types, and the tokens of added_tokens.json."""
        n_vocab = self.check_size(0, len(found))
        tokens = [f"[PAD{i}]" for i in range(n_vocab)]
        scores, types = [LEAST_SCORE] * n_vocab, [UNUSED] * n_vocab
        known = {UNKNOWN, CONTROL, UNUSED, BYTE}
        for i, piece in enumerate(found[:n_vocab]):
            tokens[i] = piece.text.decode("utf-8", "surrogateescape")
            scores[i], types[i] = piece.score, piece.type if piece.type in known else NORMAL
        added = self.folder.json("added_tokens.json") if with_added else {}
        for text, id in added.items():
            if _is_id(id, n_vocab):
                tokens[id], scores[id], types[id] = text, ADDED_SCORE, USER_DEFINED
        return tokens, scores, types

    def added_tokens(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield ids and descriptions of added_tokens_decoder in tokenizer_config.json."""
        added = self.folder.json("tokenizer_config.json").get("added_tokens_decoder", {})
        for id, token in added.items():
            yield int(id), token

    @property
    def is_sentencepiece_json(self) -> bool:
        """True if tokenizer.json stores a SentencePiece BPE: its unknown bytes are tokens."""
        stored = self.folder.json("tokenizer.json")
        model, decoder = stored.get("model"), stored.get("decoder")
        if not isinstance(model, dict) or not isinstance(decoder, dict):
            return False
        is_bpe = model.get("type") == "BPE" and bool(model.get("byte_fallback"))
        return is_bpe and decoder.get("type") == "Sequence"

    def sentencepiece_json(self) -> SpecialTokens:
        """Write a SentencePiece BPE of tokenizer.json (gguf-py: LlamaHfVocab).

        llama.cpp's converter gives all tokens the same score, and then joins them in another order
        than the tokenizer. Here the score is the negative id, the order of the merges.
        """
        tokenizer = self.tokenizer()
        n_base, added = tokenizer.get_vocab_size(False), tokenizer.get_added_tokens_decoder()
        tokens, scores, types = list[str](), list[float](), list[int]()
        ids = tokenizer.get_vocab(with_added_tokens=True)
        for text, id in sorted(ids.items(), key=lambda pair: pair[1]):
            is_special = id in added and added[id].special
            other = NORMAL if id < n_base else USER_DEFINED
            tokens.append(text)
            scores.append(-float(id) if id not in added else ADDED_SCORE)
            types.append(BYTE if is_byte(text) else CONTROL if is_special else other)
        self.write("llama", "default", tokens, types, scores)
        return self.write_special(len(tokens))

    def write_space_prefix(self) -> None:
        """Write add_prefix_space if tokenizer_config.json has it."""
        prefix = self.folder.json("tokenizer_config.json").get("add_prefix_space")
        if prefix is not None:
            self.out.boolean("tokenizer.ggml.add_space_prefix", prefix)

    def check_size(self, least: int, default: int) -> int:
        """Return the number of tokens of the model."""
        n_vocab = default if self.n_vocab is None else self.n_vocab
        if type(n_vocab) is not int or not max(least, 1) <= n_vocab < 2**24:
            raise ModelError(
                f"{self.folder.path}: vocab_size must be at least {max(least, 1)}, the size of the "
                f"tokenizer, got {n_vocab}"
            )
        return n_vocab

    def write_special(self, n_vocab: int) -> SpecialTokens:
        """Write the special tokens with ids below n_vocab."""
        special = SpecialTokens(self.folder, n_vocab=n_vocab)
        special.write(self.out)
        return special

    def write(
        self,
        model: str,
        pre: str | None,
        tokens: Sequence[str],
        types: Sequence[int],
        scores: Sequence[float] = (),
    ) -> None:
        """Write the kind of tokenizer and its tokens."""
        self.out.text("tokenizer.ggml.model", model)
        if pre is not None:
            self.out.text("tokenizer.ggml.pre", pre)
        self.out.array("tokenizer.ggml.tokens", tokens)
        if scores:
            self.out.array("tokenizer.ggml.scores", scores)
        self.out.array("tokenizer.ggml.token_type", types)


def pre_tokenizer(folder: CheckpointFolder, tokenizer: Tokenizer) -> str:
    """Return the name of a pre-tokenizer: by the ids of a text as in llama.cpp's converter, or else
    the first that splits this text into the same words.

    Raises ModelError if no pre-tokenizer of llama.cpp does.
    """
    plain = tokenizer.encode(PROBE, add_special_tokens=False).ids
    special = SpecialTokens(folder).ids
    starts, ends = ([[], [special[role]] if role in special else []] for role in ("bos", "eos"))
    # A tokenizer of transformers adds bos and eos by settings of tokenizer_config.json as well.
    possible = [tokenizer.encode(PROBE).ids, *([*a, *plain, *z] for z in ends for a in starts)]
    digests = [sha256(str(ids).encode()).hexdigest() for ids in possible]
    known = _names_by_digest()
    name = next((known[digest] for digest in digests if digest in known), None)
    if name is None and (name := _find_equal(folder, tokenizer)) is not None:
        log.warning(
            "%s: llama.cpp's converter does not know this pre-tokenizer; it splits a text like %s, "
            "so that name is used; --pre NAME sets another",
            folder.path,
            name,
        )
    if name is None:
        raise ModelError(
            f"{folder.path}: its pre-tokenizer is not known (ids of the test text: {digests[0]}); "
            "convert it with its name: llama-py-gguf convert --pre NAME"
        )
    return name


def _find_equal(folder: CheckpointFolder, tokenizer: Tokenizer) -> str | None:
    """Return the first pre-tokenizer that splits PROBE like a tokenizer, or None."""
    if tokenizer.pre_tokenizer is None:
        return None
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str(PROBE)
    own = [PROBE[start:end] for _, (start, end) in pieces]
    ignores = bool(folder.json("tokenizer.json")["model"].get("ignore_merges"))
    equal = [
        (one.ignore_merges != ignores, i, name)
        for i, (name, one) in enumerate(PRE_TOKENIZERS.items())
        if one.as_bytes and one.split(PROBE) == own
    ]
    return min(equal)[2] if equal else None


@cache
def _names_by_digest() -> dict[str, str]:
    rows = (line.split(" ", 1) for line in DIGESTS.read_text("utf-8").splitlines())
    return {digest: name for digest, name in rows}


def _is_id(id: Any, n_vocab: int) -> bool:
    return type(id) is int and 0 <= id < n_vocab


def is_byte(text: str) -> bool:
    """Return True for the text of a byte's token, such as <0x0A>."""
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")

"""Vocabularies of tiktoken's files: lines of a token in Base64 and its rank, which is its id."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.checkpoint.sentencepiece import CONTROL, NORMAL, UNUSED
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

KIMI, KIMI_SPECIAL = "tiktoken.model", 258  # file; most special tokens
Ranks = Mapping[bytes, int]
# Bytes that are shown as themselves in a byte-level vocabulary; others as characters from 256 on
SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))


def read_ranks(path: Path) -> dict[bytes, int]:
    """Return the ranks of a file. Raises ModelError if it is missing or invalid."""
    try:
        rows = (line.split() for line in path.read_bytes().splitlines() if line)
        return {b64decode(token, validate=True): int(rank) for token, rank in rows}
    except OSError as e:
        raise ModelError(f"{path}: cannot be read: {e}; download the tokenizer's files") from None
    except (ValueError, binascii.Error):
        raise ModelError(f"{path}: not a file of tiktoken; download it again") from None


def write_ranks(
    v: Vocabulary,
    ranks: Ranks,
    special: Mapping[int, str],
    n_vocab: int,
    pre: str,
    ends: Mapping[str, int] | None = None,
    others: Mapping[str, int] | None = None,
) -> SpecialTokens:
    """Write a vocabulary as a byte-level BPE (conversion/qwen.py: _set_vocab_qwen).

    special  tokens by id
    pre      pre-tokenizer, unless --pre names another
    ends     ids by role, unless the tokenizer's files name any
    others   ids by role, for roles without one
    """
    texts = {rank: as_text(token) for token, rank in ranks.items()} | dict(special)
    tokens = [texts.get(id, f"[PAD{id}]") for id in range(n_vocab)]
    kinds = [
        UNUSED if id not in texts else CONTROL if id in special else NORMAL for id in range(n_vocab)
    ]
    v.write("gpt2", v.pre or pre, tokens, kinds)
    found = SpecialTokens(v.folder)
    found.merges = [*merges(ranks)]
    for role, id in {**({} if found.ids else ends or {}), **(others or {})}.items():
        found.set(role, id)
    found.write(v.out)
    return found


def kimi_vocabulary(v: Vocabulary) -> dict[int, str]:
    """Write the vocabulary of Kimi's models. -> special tokens by id"""
    ranks = read_ranks(v.folder.path / KIMI)
    named = v.folder.json("tokenizer_config.json").get("added_tokens_decoder", {})
    n_vocab = v.check_size(len(ranks), len(ranks))
    special = {
        id: str(named.get(str(id), {}).get("content", f"<|reserved_token_{id}|>"))
        for id in range(len(ranks), min(n_vocab, len(ranks) + KIMI_SPECIAL))
    }
    write_ranks(v, ranks, special, n_vocab, "kimi-k2")
    return special


def merges(ranks: Ranks) -> Iterator[str]:
    """Yield the merges: the two parts of each token by tokens of lower ranks."""
    for token, rank in ranks.items():
        if len(token) > 1 and len(parts := split(ranks, token, rank)) == 2:
            yield " ".join(map(as_text, parts))


def split(ranks: Ranks, token: bytes, limit: int) -> list[bytes]:
    """Join a token's bytes by the pairs of lowest rank below a limit."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 1:
        pairs = ((ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1))
        rank, at = min(pairs)
        if rank >= limit:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def as_text(token: bytes) -> str:
    """Return bytes as characters of a byte-level vocabulary."""
    return token.decode("latin-1").translate(CHARACTERS)


CHARACTERS = {byte: 256 + i for i, byte in enumerate(b for b in range(256) if b not in SHOWN)}

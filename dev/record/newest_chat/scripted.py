"""A model that writes one text after any prompt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, TokenType

F32: TypeAlias = npt.NDArray[np.float32]

LOGIT = 100.0  # of the next piece of the text
EOS = 256  # after the bytes
TOKENIZER = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
WIDTH = 32  # the number of tokens is a multiple


def byte_letters() -> list[str]:
    """Return GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


LETTERS = byte_letters()


def spell(text: str) -> str:
    return "".join(LETTERS[byte] for byte in text.encode())


def split(text: str) -> list[str]:
    """Split a text into short pieces that all differ, and differ from single bytes."""
    found: list[str] = []
    known, at = {*LETTERS}, 0
    while at < len(text):
        end = at + 2
        while end <= len(text) and spell(text[at:end]) in known:
            end += 1
        if end > len(text):
            break
        found.append(text[at:end])
        known.add(spell(found[-1]))
        at = end
    rest = text[at:]
    while found and spell(rest) in known:  # too short: it belongs to the piece before it
        rest = found.pop() + rest
    return [*found, rest] if rest else found


@dataclass(frozen=True)
class Script:
    """first: the token of the text's first piece; n: number of pieces."""

    first: int
    n: int


def write_script(path: Path, text: str) -> Script:
    """Write a model: its next token depends only on the last token.

    After a piece of the text the next piece has a logit of LOGIT, after any other token all logits
    are equal: a bias of the first piece, below LOGIT, starts the text.
    """
    pieces = [spell(piece) for piece in split(text)]
    tokens = [*LETTERS, "<eos>", *pieces]
    types = [TokenType.NORMAL] * EOS + [TokenType.CONTROL] + [TokenType.NORMAL] * len(pieces)
    padding = -len(tokens) % WIDTH
    tokens += [f"<unused {i}>" for i in range(padding)]
    types += [TokenType.UNUSED] * padding
    n = len(tokens)
    chain = [*range(EOS + 1, EOS + 1 + len(pieces)), EOS]
    output = np.zeros((n, n), np.float32)
    for last, following in pairwise(chain):
        output[following, last] = LOGIT / np.sqrt(n)  # embeddings have one 1, then a norm
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[MODEL_ARCH.LLAMA])
    _write_keys(writer, tokens, types)
    for name, array in _tensors(n, output).items():
        writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Script(chain[0], len(pieces))


def _write_keys(writer: GGUFWriter, tokens: list[str], types: list[TokenType]) -> None:
    n = len(tokens)
    writer.add_context_length(32768)
    writer.add_embedding_length(n)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(n)
    for key, value in TOKENIZER.items():
        writer.add_string(key, value)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{LETTERS[32]} {LETTERS[32]}"])
    writer.add_bos_token_id(EOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)


def _tensors(n: int, output: F32) -> dict[str, F32]:
    """Return tensors of a layer without effect, and the head."""
    ones, square = np.ones(n, np.float32), np.zeros((n, n), np.float32)
    found = {"token_embd": np.eye(n, dtype=np.float32), "output": output, "output_norm": ones}
    found |= {f"blk.0.{name}_norm": ones for name in ("attn", "ffn")}
    found |= {f"blk.0.attn_{name}": square for name in ("q", "k", "v", "output")}
    found |= {f"blk.0.ffn_{name}": np.zeros((WIDTH, n), np.float32) for name in ("gate", "up")}
    return found | {"blk.0.ffn_down": np.zeros((n, WIDTH), np.float32)}

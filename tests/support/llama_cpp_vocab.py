"""The vocabulary of a file as llama.cpp reads it, through llama-cpp-python."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any


class LlamaCpp:
    """`lib` is the module llama_cpp."""

    def __init__(self, lib: Any, path: Path) -> None:
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self.lib = lib
        self.model = lib.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, f"llama.cpp does not open {path}"
        self.vocab = lib.llama_model_get_vocab(self.model)

    def tokenize(self, text: str | bytes, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        out = (ctypes.c_int32 * (2 * len(data) + 16))()
        n = self.lib.llama_tokenize(
            self.vocab, data, len(data), out, len(out), add_special, parse_special
        )
        assert n >= 0
        return list(out[:n])

    def piece(self, id: int, special: bool) -> bytes:
        out = ctypes.create_string_buffer(1024)
        n = self.lib.llama_token_to_piece(self.vocab, id, out, len(out), 0, special)
        return out.raw[:n]

    def detokenize(self, ids: list[int], remove_special: bool, special: bool) -> bytes:
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        out = ctypes.create_string_buffer(1 << 20)
        n = self.lib.llama_detokenize(
            self.vocab, tokens, len(ids), out, len(out), remove_special, special
        )
        assert n >= 0
        return out.raw[:n]

    def is_eog(self, id: int) -> bool:
        return bool(self.lib.llama_vocab_is_eog(self.vocab, id))

    def special_id(self, name: str) -> int | None:
        """`bos`, `eos`, `eot`, ...; None where the file has none."""
        id = getattr(self.lib, f"llama_vocab_{name}")(self.vocab)
        return None if id < 0 else id

"""Constants of llama-cpp-python: numbers of enum values, as they occur in its options."""

from __future__ import annotations

from ctypes import Array, c_char, memmove
from typing import TYPE_CHECKING, Any

from ggml_py.types import TYPES
from llama_py.params import POOLING
from llama_py.tokenizer import Tokenizer
from llama_py.weights.placement import devices_in_use

LLAMA_DEFAULT_SEED = 0xFFFFFFFF
LLAMA_MAX_DEVICES = 16
LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER, LLAMA_SPLIT_MODE_ROW = range(3)
LLAMA_POOLING_TYPE_UNSPECIFIED = -1
(
    LLAMA_POOLING_TYPE_NONE,
    LLAMA_POOLING_TYPE_MEAN,
    LLAMA_POOLING_TYPE_CLS,
    LLAMA_POOLING_TYPE_LAST,
    LLAMA_POOLING_TYPE_RANK,
) = range(len(POOLING))
LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED = -1
LLAMA_ROPE_SCALING_TYPE_NONE, LLAMA_ROPE_SCALING_TYPE_LINEAR, LLAMA_ROPE_SCALING_TYPE_YARN = range(
    3
)
LLAMA_ATTENTION_TYPE_UNSPECIFIED = -1
LLAMA_ATTENTION_TYPE_CAUSAL, LLAMA_ATTENTION_TYPE_NON_CAUSAL = range(2)
LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED = (
    -1,
    0,
    1,
)
GGML_NUMA_STRATEGY_DISABLED, GGML_NUMA_STRATEGY_DISTRIBUTE = range(2)


def llama_supports_mmap() -> bool:
    """Return True: files are mapped into memory."""
    return True


def llama_supports_mlock() -> bool:
    """Return True: `use_mlock` locks the weights, if the system permits it."""
    return True


def llama_supports_gpu_offload() -> bool:
    """Return True if a GPU can run layers."""
    return len(devices_in_use("auto")) > 1


def llama_max_devices() -> int:
    """Return the maximum number of devices, like llama.cpp."""
    return LLAMA_MAX_DEVICES


def llama_model_get_vocab(model: Tokenizer) -> Tokenizer:
    """Return the vocabulary of `Llama.model`."""
    return model


def llama_vocab_n_tokens(vocab: Tokenizer) -> int:
    """Return the number of tokens."""
    return vocab.n_vocab


def llama_vocab_is_eog(vocab: Tokenizer, token: int) -> bool:
    """Return True if generation ends with this token."""
    return vocab.is_eog(token)


def llama_token_to_piece(
    vocab: Tokenizer, token: int, buf: Array[c_char], length: int, lstrip: int, special: bool
) -> int:
    """Write the bytes of a token to a buffer of `length` bytes, without up to lstrip spaces; return
    their number, or if they do not fit the negative number (llama.h)."""
    piece = vocab.token_to_piece(token, special)
    n_spaces = min(lstrip, len(piece) - len(piece.lstrip(b" ")))
    piece = piece[n_spaces:]
    if len(piece) > length:
        return -len(piece)
    memmove(buf, piece, len(piece))
    return len(piece)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a constant of a tensor type, GGML_TYPE_*."""
        kind = name.removeprefix("GGML_TYPE_").lower()
        found = [id for id, t in TYPES.items() if t.name.lower() == kind]
        if found and name.startswith("GGML_TYPE_"):
            return found[0]
        why = "; llama-py has no C functions, use the methods of Llama"
        hint = why if name.startswith(("llama_", "ggml_")) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)

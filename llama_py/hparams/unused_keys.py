"""Metadata keys of a file that no code read while its model was built.

| key | result |
|---|---|
| a note: general.*, tokenizer.*, split.* and others | no message |
| a name of llama.cpp's, which ignores it for this architecture | no message |
| an unknown name, with a neutral value (`is_neutral`) | warning |
| an unknown name that by its words changes the computation | HParamsError |
| another unknown name | warning |

Converters and llama.cpp's own saver write keys that no graph uses, so a name of llama.cpp's is no
fault. `tests/llama_py/test_unused_keys.py` compares the keys that llama.cpp reads with `keys_read`.

A key without the architecture's prefix changes the computation if its words are about transformed
weights, and the architecture has models with folded weights (see `llama_py.hparams.hadamard`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ggml_py.errors import HParamsError
from llama_py.gguf.metadata import printable
from llama_py.hparams.known_keys import KNOWN_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llama_py.hparams.hparams import HParams

log = logging.getLogger("llama_py")

MAX_LISTED = 5

# Namespaces that describe a file, or that other programs read.
NOTES = (
    "general.",
    "tokenizer.",
    "split.",
    "quantize.",
    "imatrix.",
    "adapter.",
    "diffusion.",
    "mradermacher.",
    "xielu.",  # llama.cpp's saver writes these for every architecture
)
DECISIONS = ("decision.type", "decision.temperature.")  # llama_py.text.decide reads them
OTHER_MODELS = ("vision.", "audio.", "mm.")  # keys of encoders, after the architecture
# Names of hyperparameters that change the computation.
COMPUTATION = re.compile(
    r"(attention|rope|ssm|wkv|kda|shortconv|hyper_connection|altup|activation|hrm|ple)\."
    r"|.*(scale|scaling|softcap|clamp|multiplier|factor|gating|norm|expert|epsilon|sparsity"
    r"|residual|activation|sliding|window|rotat|hadamard)"
)
# Words about transformed weights.
TRANSFORMED = re.compile(
    r"(.*[._])?(hadamard|rotat|orthogonal|smooth|whiten|permut"
    r"|(fold|folded|transform|signs?|scales?)(\b|_|\d))",
    re.IGNORECASE,
)
FACTOR = re.compile(r".*(scale|factor|multiplier|alpha)")


def check_unused_keys(
    where: str, metadata: Mapping[str, Any], hp: HParams, folds: bool = False
) -> None:
    """Raise HParamsError for unknown keys that change the computation; log others.

    Args:
        where: The file.
        metadata: Its metadata.
        hp: Hyperparameters of the built model.
        folds: The architecture has models with folded weights.
    """
    unused = list(_find_unused(metadata, hp))
    wrong = [key for key in unused if _is_error(key, metadata[key], hp.arch, folds)]
    if wrong:
        raise HParamsError(
            f"{where}: llama-py must know all keys that change the computation, but does not know "
            f"{_list(wrong, metadata)}; update llama-py, or remove them if the model does "
            "not need them: llama-py-gguf set --remove KEY -o NEW FILE"
        )
    if unused:
        log.warning(
            "%s: metadata keys that llama-py does not know are ignored (%d): %s; results are wrong "
            "if the model needs them: update llama-py, or remove them with llama-py-gguf set",
            where,
            len(unused),
            _list(unused, metadata),
        )


def _find_unused(metadata: Mapping[str, Any], hp: HParams) -> Iterator[str]:
    prefix = f"{hp.arch}."
    for key in metadata:
        name = key.removeprefix(prefix)
        known = name != key and (name in KNOWN_KEYS or name.startswith(DECISIONS))
        if not known and key not in hp.keys_read and not key.startswith(NOTES):
            yield key


def _is_error(key: str, value: Any, arch: str, folds: bool) -> bool:
    name = key.removeprefix(f"{arch}.")
    if is_neutral(name, value):
        return False
    if name == key:
        return folds and TRANSFORMED.match(key) is not None
    return not name.startswith(OTHER_MODELS) and COMPUTATION.match(name) is not None


def is_neutral(name: str, value: Any) -> bool:
    """Return True for a value that disables its key: zero, false, "", "none", or a factor of 1."""
    if isinstance(value, list | np.ndarray):
        return all(is_neutral(name, item) for item in value)
    if isinstance(value, str):
        return value in ("", "none")
    return not value or (value == 1 and FACTOR.match(name) is not None)


def _list(keys: list[str], metadata: Mapping[str, Any]) -> str:
    shown = [f"{printable(key)} = {_shorten(metadata[key])}" for key in keys[:MAX_LISTED]]
    more = len(keys) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _shorten(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return printable(text if len(text) <= 40 else text[:37] + "...")

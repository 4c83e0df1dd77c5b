"""Models by short name: `llama-py run sea-0.6b`, `-m sea-0.6b`.

A name is the file's name without `.gguf`, or its beginning, in upper or lower case. `NAME:TYPE`
selects a type, such as `sea-0.6b:q4_k_m`. The search covers LLAMA_PY_MODELS (folders in the format
of PATH), the folder of -mu, and the Hub's cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from llama_py.loading.hub import is_model
from llama_py_tools.models.hub import cached_files
from llama_py_tools.models.url import folder

_NAME = re.compile(r"[^/\\]+")
_PART = re.compile(r"-00001-of-\d{5}$")
_TYPE = re.compile(r"[-.]((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*))$", re.IGNORECASE)
PULL = "llama-py pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M"  # downloads a small model
SHOWN = 12  # names in a message


def folders() -> list[Path]:
    """Return the folders to search; the first that has a name counts."""
    named = os.environ.get("LLAMA_PY_MODELS", "")
    return [*(Path(one) for one in named.split(os.pathsep) if one), folder()]


def known_models() -> dict[str, Path]:
    """Return paths by name, with the folders before the Hub's cache."""
    found: dict[str, Path] = {}
    for path in _files():
        found.setdefault(short_name(path), path)
    return found


def is_name(text: str) -> bool:
    """Return True if a text can be a short name, not a path."""
    return _NAME.fullmatch(text) is not None


def find(name: str) -> Path | None:
    """Return the model with this name, or None; ModelError if the name is ambiguous."""
    if not is_name(name):
        return None
    models = known_models()
    candidates = _match_name(name.lower(), {stem.lower(): stem for stem in models})
    if len(candidates) > 1:
        from ggml_py.errors import ModelError

        more = ", ..." if len(candidates) > SHOWN else ""
        raise ModelError(
            f"{name!r} is ambiguous: {', '.join(candidates[:SHOWN])}{more}; use a full name"
        )
    return models[candidates[0]] if candidates else None


def split_type(name: str) -> tuple[str, str]:
    """Return a name without its type, and the type: `sea-0.6b` and `q8_0`, or ""."""
    base, _, kind = name.partition(":")
    found = None if kind else _TYPE.search(name)
    return (name[: found.start()], found[1]) if found else (base, kind)


def _match_name(name: str, stems: Mapping[str, str]) -> list[str]:
    """Return the exact match, else matches with any type, else all that begin with the name."""
    if name in stems:
        return [stems[name]]
    base, _, kind = name.partition(":")
    if kind:
        of = [s for s in stems if s.startswith(base) and (t := _TYPE.search(s)) and t[1] == kind]
        whole = [s for s in of if _TYPE.sub("", s) == base]
    else:
        of = [s for s in stems if s.startswith(name)]
        whole = [s for s in of if _TYPE.sub("", s) == name]
    return sorted(stems[s] for s in whole or of)


def _files() -> Iterator[Path]:
    for where in folders():
        for pattern in ("*.gguf", "*/*.gguf"):
            yield from sorted(path for path in where.glob(pattern) if is_model(path.name))
    yield from cached_files()


def short_name(path: Path) -> str:
    """Return the short name of a file."""
    return _PART.sub("", path.stem)

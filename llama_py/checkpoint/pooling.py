"""Pooling of sentence-transformers' folders as keys (conversion/base.py: _try_set_pooling_type)."""

from __future__ import annotations

import json
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues

TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}  # llama_pooling_type
CLASSIFIER = ("mean", "cls")
FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}


def pooling_keys(folder: CheckpointFolder, out: KeyValues) -> None:
    """Set pooling_type if modules.json has a pooling module, and a classifier's pooling.

    Raises ModelError for a type that llama.cpp does not have.
    """
    for path in find_modules(folder, "Pooling")[:1]:
        config = folder.json(f"{path}/config.json")
        kind = next((name for flag, name in FLAGS.items() if config.get(flag)), None)
        out.u32("pooling_type", _type(kind or config.get("pooling_mode")))
    kind, is_classifier = folder.config.get("classifier_pooling"), "Class" in folder.model_name
    if kind in CLASSIFIER or (kind is not None and is_classifier):
        out.u32("classifier.pooling_type", _type(kind, CLASSIFIER))


def _type(kind: Any, known: tuple[str, ...] = tuple(TYPES)) -> int:
    if kind not in known:
        raise ModelError(f"pooling must be {', '.join(known)}, got {str(kind)[:50]!r}")
    return TYPES[kind]


def find_modules(folder: CheckpointFolder, kind: str) -> list[str]:
    """Return the subfolders of modules of a kind. Raises ModelError if modules.json is invalid."""
    text = folder.text("modules.json")
    if text is None:
        return []
    try:
        found = [m["path"] for m in json.loads(text) if m["type"].endswith(kind)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelError(
            f"{folder.path / 'modules.json'}: must be a list of modules with path and type; "
            "download it again"
        ) from None
    if any(not isinstance(p, str) or ".." in p or p[:1] in ("", "/", "\\") for p in found):
        raise ModelError(f"{folder.path / 'modules.json'}: a path must be within the folder")
    return found

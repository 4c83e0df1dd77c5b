"""Pooling of sentence-transformers' folders as keys (conversion/base.py: _try_set_pooling_type)."""

from __future__ import annotations

import json
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues

TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}  # llama_pooling_type
FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}


def pooling_keys(folder: CheckpointFolder, out: KeyValues) -> None:
    """Set pooling_type if modules.json has a pooling module, and a classifier's pooling.

    Raises ModelError for a type that llama.cpp does not have.
    """
    if (path := _module_path(folder)) is not None:
        config = folder.json(f"{path}/config.json")
        kind = next((name for flag, name in FLAGS.items() if config.get(flag)), None)
        out.u32("pooling_type", _type(kind or config.get("pooling_mode")))
    if (kind := folder.config.get("classifier_pooling")) is not None:
        out.u32("classifier.pooling_type", _type(kind, ("mean", "cls")))


def _type(kind: Any, known: tuple[str, ...] = tuple(TYPES)) -> int:
    if kind not in known:
        raise ModelError(f"pooling must be {', '.join(known)}, got {str(kind)[:50]!r}")
    return TYPES[kind]


def _module_path(folder: CheckpointFolder) -> str | None:
    """Return the subfolder of the pooling module."""
    text = folder.text("modules.json")
    if text is None:
        return None
    try:
        modules = json.loads(text)
        found = next((m["path"] for m in modules if m["type"].endswith("Pooling")), None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelError(f"{folder.path / 'modules.json'}: not a list of modules") from None
    if found is not None and (not isinstance(found, str) or ".." in found or found[:1] in "/\\"):
        raise ModelError(f"{folder.path / 'modules.json'}: a path must be within the folder")
    return found

"""Image encoders by their names in clip.projector_type."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from ggml_py.errors import UnknownArchitecture
from llama_py.gguf.metadata import printable
from llama_py.vision.projectors._projector import Dynamic, Projector

__all__ = ["Dynamic", "Projector", "known_projectors", "projector"]


@cache
def known_projectors() -> Mapping[str, type[Projector]]:
    """Return all encoders by name."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    modules = [import_module(f"{__name__}.{name}") for name in names]
    found = ((m, kind) for m in modules for kind in vars(m).values() if _is_one(kind))
    kinds = [kind for m, kind in found if kind.__module__ == m.__name__]
    return {kind.name: kind for kind in sorted(kinds, key=lambda k: str(k.name))}


def _is_one(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Projector) and hasattr(kind, "name")


def projector(name: str) -> type[Projector]:
    """Return the encoder of this name; UnknownArchitecture lists known names."""
    found = known_projectors().get(name)
    if found is None:
        raise UnknownArchitecture(
            f"unknown projector {printable(name)!r}; known: {', '.join(known_projectors())}"
        )
    return found

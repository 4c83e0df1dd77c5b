"""Architectures, one file each, found by name and imported when a model needs them.

The file of an architecture is its name with `-` as `_` (names with `_` are found by the file's line
`arch =`). Files that start with `_` are shared parts.
A separate package adds an architecture by an entry point in the group `llama_py.models`: its name
is the architecture's, its value a module with a subclass of `Architecture`. Scripts and notebooks
use `register`.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from ggml_py._moved import former_names
from ggml_py.errors import UnknownArchitecture
from llama_py.models.trunks.architecture import Architecture
from llama_py.params.near import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "llama_py.models"

A = TypeVar("A", bound=type[Architecture])

_REGISTERED: dict[str, type[Architecture]] = {}


def register(kind: A) -> A:
    """Make a class known by its `arch`, before any other of that name; may decorate it."""
    _REGISTERED[kind.arch] = kind
    return kind


def known_architectures() -> list[str]:
    """Return the names that general.architecture may have, without importing them."""
    return sorted({*_REGISTERED, *_own_modules(), *_entry_points()})


@cache
def _own_modules() -> dict[str, str]:
    """Return the module of each architecture in this folder."""
    modules = (m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg)
    return {architecture_name(name): name for name in modules if not name.startswith("_")}


@cache
def architecture_name(module: str) -> str:
    """Return the name of the architecture that a module of this folder defines."""
    if "_" not in module:
        return module
    dashed = module.replace("_", "-")
    source = (pkgutil.get_data(__name__, f"{module}.py") or b"").decode("utf-8")
    said = re.findall(r'^    arch = "([^"]+)"$', source, re.MULTILINE)
    return next((name for name in said if name.replace("_", "-") == dashed), dashed)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to import

    return {point.name: point for point in entry_points(group=GROUP)}


def architecture(arch: str) -> type[Architecture]:
    """Return the class of an architecture; UnknownArchitecture suggests similar names."""
    if arch in _REGISTERED:
        return _REGISTERED[arch]
    module = _own_modules().get(arch)
    if module is not None:
        return _find_class(import_module(f"{__name__}.{module}"), arch)
    if arch in _entry_points():
        return _find_class(_entry_points()[arch].load(), arch)
    known = known_architectures()
    found = nearest(arch, known)
    hint = f", nearest: {', '.join(found)}" if found else ""
    raise UnknownArchitecture(
        f"architecture {arch!r} is not supported ({len(known)} are{hint}); "
        f"update llama-py, or see the guide 'Add an architecture' in its documentation"
    )


def _find_class(module: ModuleType, arch: str) -> type[Architecture]:
    for value in vars(module).values():
        is_one = isinstance(value, type) and issubclass(value, Architecture)
        if is_one and vars(value).get("arch") == arch:
            found: type[Architecture] = value
            return found
    raise UnknownArchitecture(f"{module.__name__} defines no Architecture with arch = {arch!r}")


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, spelled="architecture_name")

"""Traversal of a model's attributes and tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ggml_py.tensor import Tensor
from llama_py.gguf.keys import DeclaredKeys
from llama_py.weights import Weights

_NO_PARTS = (DeclaredKeys, Weights, str, bytes, int, float, bool, type, type(None))


def attributes(owner: object) -> dict[str, Any]:
    """Return an object's attributes by name, of __dict__ and of slots."""
    slots = (name for base in type(owner).__mro__ for name in getattr(base, "__slots__", ()))
    found = {name: getattr(owner, name) for name in slots if hasattr(owner, name)}
    return {**found, **getattr(owner, "__dict__", {})}


def is_made_of(value: object) -> bool:
    """Return True if a value may contain tensors."""
    own = not isinstance(value, _NO_PARTS) and not inspect.isroutine(value)
    return own and not inspect.ismodule(value)


def inside(value: Any) -> Iterator[Any]:
    """Yield the values directly inside a value."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    else:
        yield from attributes(value).values()


def collect_values(value: Any) -> list[Any]:
    """Return all values inside a value, itself included, each once."""
    found: dict[int, Any] = {}
    todo = [value]
    while todo:
        one = todo.pop()
        if id(one) in found or not is_made_of(one):
            continue
        found[id(one)] = one
        if not isinstance(one, Tensor):
            todo += inside(one)
    return [*found.values()]


def collect_tensors(value: Any) -> list[Tensor]:
    return [one for one in collect_values(value) if isinstance(one, Tensor)]


def is_block(value: object) -> bool:
    """Return True if it is called like attention or a feed-forward; its content is then private."""
    if not callable(value) or inspect.isroutine(value):
        return False
    parameters = inspect.signature(value).parameters
    layer = parameters.get("il")
    return layer is not None and layer.default is layer.empty and "last" not in parameters

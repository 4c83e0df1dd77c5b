"""Modules at their former places."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from llama_py._moved import MOVED, new_place


@pytest.mark.parametrize("old", MOVED)
def test_former_places(old: str) -> None:
    new = import_module(f"llama_py.{MOVED[old]}")
    sys.modules.pop(f"llama_py.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"llama_py.{old} has moved; import {new.__name__}"):
        assert import_module(f"llama_py.{old}") is new


def test_modules_of_a_moved_package_are_the_same() -> None:
    sys.modules.pop("llama_py.reuse.cache", None)
    with pytest.warns(DeprecationWarning, match="cache has moved"):
        old = import_module("llama_py.reuse.cache")
    assert old is import_module("llama_py.decoding.prefix_cache.cache")
    assert old.__spec__.name == old.__name__ == "llama_py.decoding.prefix_cache.cache"


def test_what_has_not_moved() -> None:
    assert new_place("llama_py.context") is None
    assert new_place("llama_py.context.runner") is None
    assert new_place("reuse") is None
    with pytest.raises(ModuleNotFoundError, match=r"llama_py\.nowhere"):
        import_module("llama_py.nowhere")

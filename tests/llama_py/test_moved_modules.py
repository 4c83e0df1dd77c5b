"""Modules at their former places."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import pytest

from ggml_py import _moved as ggml
from llama_py import _moved as llama

MOVED = [
    *(("ggml_py", *places) for places in ggml.MOVED.items()),
    *(("llama_py", *places) for places in llama.finder().moved.items()),
]


@pytest.mark.parametrize(("package", "old", "new"), MOVED)
def test_former_places(package: str, old: str, new: str) -> None:
    found = import_module(f"{package}.{new}")
    sys.modules.pop(f"{package}.{old}", None)
    with pytest.warns(
        DeprecationWarning, match=f"{package}.{old} is deprecated; import {found.__name__}"
    ):
        assert import_module(f"{package}.{old}") is found


@pytest.mark.parametrize(("old", "new"), ggml.STABLE.items())
def test_stable_places_do_not_warn(old: str, new: str) -> None:
    found = import_module(f"ggml_py.{new}")
    sys.modules.pop(f"ggml_py.{old}", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert import_module(f"ggml_py.{old}") is found


def test_modules_of_a_moved_package_are_the_same() -> None:
    sys.modules.pop("llama_py.reuse.cache", None)
    with pytest.warns(DeprecationWarning, match="cache is deprecated"):
        old = import_module("llama_py.reuse.cache")
    assert old is import_module("llama_py.decoding.prefix_cache.cache")
    assert old.__spec__.name == old.__name__ == "llama_py.decoding.prefix_cache.cache"


def test_what_has_not_moved() -> None:
    assert llama.finder().new_place("llama_py.context") is None
    assert llama.finder().new_place("llama_py.context.runner") is None
    assert llama.finder().new_place("reuse") is None
    with pytest.raises(ModuleNotFoundError, match=r"llama_py\.nowhere"):
        import_module("llama_py.nowhere")


def test_former_modules_of_the_server() -> None:
    import llama_py_server

    for room, names in llama_py_server._MOVED.items():
        for name, _, new in (one.partition(":") for one in names.split()):
            place = f"{room}.{new or name}"
            with pytest.warns(DeprecationWarning, match=f"import llama_py_server.{place}"):
                assert getattr(llama_py_server, name).__name__.endswith(place)
    with pytest.raises(AttributeError, match="nothing"):
        llama_py_server.nothing  # noqa: B018

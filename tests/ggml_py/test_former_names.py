"""Former names of attributes, which warn for one release."""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import ggml_py
import llama_py
from ggml_py._moved import Former, adopt, former_names


class Base:
    def __init_subclass__(cls) -> None:
        adopt(cls)

    def new(self) -> str:
        return "base"

    value = 1
    old = Former("new")
    former_value = Former("value")


def test_attributes_of_classes() -> None:
    one: Any = Base()
    with pytest.warns(DeprecationWarning, match=r"^Base\.old is deprecated; use new$") as found:
        assert one.old() == "base"
    assert found[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"^Base\.former_value is deprecated; use value$"):
        one.former_value = 2
    assert one.value == 2 and Base.value == 1
    with pytest.warns(DeprecationWarning, match=r"^Base\.former_value is deprecated"):
        assert Base.former_value == 1


def test_methods_of_subclasses() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Sub\.old is deprecated; use new$") as found:

        class Sub(Base):
            def old(self) -> str:
                return "sub"

    assert found[0].filename == __file__
    assert Sub().new() == "sub"


def test_attributes_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("toy")
    module.New = Base
    module.__getattr__ = former_names("toy", Old="New")
    monkeypatch.setitem(sys.modules, "toy", module)
    with pytest.warns(DeprecationWarning, match=r"^toy\.Old is deprecated; use New$") as found:
        assert module.Old is Base
    assert found[0].filename == __file__
    with pytest.raises(AttributeError, match="module 'toy' has no attribute 'nothing'"):
        _ = module.nothing


def _declared() -> Iterator[tuple[type, Former]]:
    for package in (ggml_py, llama_py):
        for file in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(file.name)).values():
                if isinstance(value, type) and value.__module__ == file.name:
                    yield from ((value, one) for one in vars(value).values() if type(one) is Former)


def test_every_present_name_exists() -> None:
    """In the class, or as an attribute that its methods set."""
    found = [*_declared()]
    assert len(found) > 50
    for owner, one in found:
        ours = [base for base in owner.__mro__ if base.__module__.startswith(("ggml_", "llama_"))]
        text = "".join(map(inspect.getsource, ours))
        is_set = re.search(rf"\bself\.{one.name}\b|^    {one.name}:", text, re.MULTILINE)
        assert hasattr(owner, one.name) or is_set, f"{owner.__name__}.{one.former}: {one.name}"

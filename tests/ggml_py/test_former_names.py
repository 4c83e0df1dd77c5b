"""Former names of attributes, which warn for one release."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

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

"""The demonstration model's recipe on a machine that does not train: it says what it needs."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("dev.make.demo_model")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"needs torch: pip install -e '\.\[train\]'"):
        importlib.import_module("dev.make.demo_model.data")

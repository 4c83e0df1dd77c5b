"""Interfaces of other libraries on top of `llama_py.Model`: llama-cpp-python's.

import llama_py.compat

llama_py.compat.install()
from llama_cpp import Llama  # llama_py.compat.llama_cpp
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

from ggml_py.errors import ModelError

__all__ = ["install"]

NAME = "llama_cpp"


def install() -> None:
    """Make `import llama_cpp` return `llama_py.compat.llama_cpp`, in this process.

    Call it before libraries that import `llama_cpp`. It also works if llama-cpp-python is
    installed, but not after the import of llama-cpp-python: ModelError.
    """
    package = import_module(f"{__name__}.{NAME}")
    found = sys.modules.get(NAME)
    if found is not None and found is not package:
        raise ModelError(
            f"llama_cpp is already imported from {found.__file__}; call install() before the first "
            "import of llama_cpp"
        )
    sys.modules[NAME] = package
    for one in iter_modules(package.__path__):
        if not one.name.startswith("_"):
            sys.modules[f"{NAME}.{one.name}"] = import_module(f"{package.__name__}.{one.name}")

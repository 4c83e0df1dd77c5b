"""The interface of llama-cpp-python on the library of the wheel llama-cpp-py-sync."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

LIBC = "libc/usr/lib/x86_64-linux-gnu"
NUMBERS = {
    "_Bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}
SHORT = {"llama_log_callback": "ggml_log_callback"}  # names of llama-cpp-python


def python_command(folder: Path) -> list[str]:
    """Return the command that starts Python with the folder's libc, if it has one."""
    libc, given = folder / LIBC, os.environ.get("LD_LIBRARY_PATH", "")
    if not libc.exists():
        return [sys.executable]
    path = f"{libc}:{folder / 'llama_cpp_py_sync'}:{given}"
    return [str(libc / "ld-linux-x86-64.so.2"), "--library-path", path, sys.executable]


class Binding(ModuleType):
    """Functions and types of llama.h, made from the wheel's own declarations, as in the module
    `llama_cpp`. So a later build with other structs needs no change here."""

    def __init__(self) -> None:
        super().__init__("llama_cpp")
        from llama_cpp_py_sync import _cffi_bindings as cffi

        self._ffi, self._cffi = cffi.get_ffi(), cffi.get_lib()
        self._lib = ctypes.CDLL(cffi._find_library())
        self.llama_cpp = self  # the module of the bare functions has the same names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(self._cffi, name):
            found = getattr(self._lib, name)
            kind = self._ffi.typeof(getattr(self._cffi, name))
            found.argtypes = [_ctype(self._ffi, arg) for arg in kind.args]
            found.restype = _ctype(self._ffi, kind.result)
        else:
            found = _ctype(self._ffi, self._ffi.typeof(SHORT.get(name, name)))
        setattr(self, name, found)
        return found


@cache
def _ctype(ffi: Any, kind: Any) -> Any:
    """Convert a type from cffi to ctypes. A pointer to a struct becomes a void pointer."""
    if kind.kind == "void":
        return None
    if kind.kind == "enum":
        return ctypes.c_int
    if kind.kind == "primitive":
        return NUMBERS.get(kind.cname) or _integer(ffi, kind)
    if kind.kind == "function":
        return ctypes.CFUNCTYPE(_ctype(ffi, kind.result), *(_ctype(ffi, a) for a in kind.args))
    if kind.kind == "array":
        return _ctype(ffi, kind.item) * kind.length
    if kind.kind == "struct":
        fields = [(name, _ctype(ffi, field.type)) for name, field in kind.fields]
        return type(kind.cname, (ctypes.Structure,), {"_fields_": fields})
    assert kind.kind == "pointer", kind
    if kind.item.cname == "char":
        return ctypes.c_char_p
    if kind.item.kind in ("primitive", "pointer"):
        return ctypes.POINTER(_ctype(ffi, kind.item))
    return ctypes.c_void_p


def _integer(ffi: Any, kind: Any) -> Any:
    signed = int(ffi.cast(kind, -1)) < 0
    return getattr(ctypes, f"c_{'' if signed else 'u'}int{8 * ffi.sizeof(kind)}")


def install() -> None:
    """Let `import llama_cpp` give this library."""
    api = sys.modules["llama_cpp"] = Binding()
    base = sys.modules["llama_cpp._ggml"] = ModuleType("llama_cpp._ggml")
    base.libggml = api._lib  # type: ignore[attr-defined]

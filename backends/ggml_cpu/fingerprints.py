"""Cache keys of compiled kernels: a hash of the environment and a fingerprint per kernel.

The environment hash covers the common dependencies of all kernels (versions, CPU, SIMD API). The
fingerprint covers one kernel: its bytecode and, recursively, its helpers and constants. So an edit
recompiles exactly the kernels that it changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import llvmlite
import numpy as np

from ggml_cpu import target
from ggml_cpu.bounds import CHECKED
from ggml_cpu.kernel import ROUTINE, Kernel, is_routine
from ggml_cpu.numba_version import numba_version
from ggml_py.machine.digest import hex_digest

FORMAT = "2"  # version of the cache file format
_CORE = (
    "target.py",
    "params.py",
    "symbols.py",
    "frontend.py",
    "helpers.py",
    "extremes.py",
    "passes.py",
    "codegen.py",
    "vocabulary/*.py",
)
_CHECKS = ("faults.py", "bounds/check.py", "bounds/instrument.py")
_FIXED = ("ggml_cpu.vocabulary", "numpy", "math")  # covered by the environment hash
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _digest(*parts: str) -> str:
    return hex_digest("\0".join(parts).encode())


@cache
def environment() -> str:
    """Return the hash of all kernels' common dependencies, with a suffix if bounds are checked.

    Raises BackendError if Numba is missing or its version is not supported.
    """
    here = Path(__file__).parent
    patterns = (*_CORE, *_CHECKS) if CHECKED else _CORE
    sources = sorted(path for pattern in patterns for path in here.glob(pattern))
    digest = _digest(
        FORMAT,
        numba_version(),
        llvmlite.__version__,
        np.__version__,
        sys.version,
        target.TRIPLE,
        target.CPU_NAME,
        target.feature_string(),
        *(path.read_text(encoding="utf-8") for path in sources),
    )[:16]
    return f"{digest}-bounds" if CHECKED else digest


def _module_name(module: ModuleType) -> str:
    """Return the module's name without executing a lazy module."""
    return str(ModuleType.__getattribute__(module, "__name__"))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


class Fingerprints:
    """Content hashes of functions, each computed once."""

    def __init__(self) -> None:
        self._known: dict[FunctionType, str] = {}
        self._begun: set[FunctionType] = set()
        self._lock = threading.RLock()  # `_begun` detects recursion within one thread only

    def fingerprint(self, function: FunctionType) -> str:
        """Return the hash of a function's bytecode, constants, defaults, globals and closure."""
        if function in self._known:
            return self._known[function]
        with self._lock:
            if function in self._begun:
                return "recursive"
            self._begun.add(function)
            try:
                self._known[function] = _digest(*self._parts(function))
            finally:
                self._begun.discard(function)
            return self._known[function]

    def _parts(self, function: FunctionType) -> Iterator[str]:
        codes = list(_nested(function.__code__))
        names = [name for code in codes for name in code.co_names]
        for code in codes:
            yield code.co_code.hex()
            yield repr((code.co_argcount, code.co_names, code.co_freevars))
            yield repr([c for c in code.co_consts if not isinstance(c, CodeType)])
        for name in names:
            if name in function.__globals__:
                yield self._value(function.__globals__[name], names)
        for cell in function.__closure__ or ():
            yield self._value(cell.cell_contents, names)
        yield self._value(function.__defaults__, names)
        if is_routine(function):
            yield ROUTINE

    def _value(self, value: object, names: list[str]) -> str:
        if isinstance(value, ModuleType):
            return self._module(value, names)
        if isinstance(value, (*_PLAIN, np.generic)):
            return repr(value)
        if isinstance(value, np.ndarray):
            return _digest(repr(value.dtype), repr(value.shape), value.tobytes().hex())
        if isinstance(value, tuple):
            return repr([self._value(item, names) for item in value])
        if isinstance(value, FunctionType):
            return self.fingerprint(value)
        return getattr(value, "__qualname__", type(value).__qualname__)

    def _module(self, module: ModuleType, names: list[str]) -> str:
        """Return the module's name and, unless the module is in _FIXED, its members in `names`."""
        name = _module_name(module)
        if name.startswith(_FIXED):
            return name
        members = [self._value(vars(module)[n], names) for n in names if n in vars(module)]
        return repr((name, members))


_FINGERPRINTS = Fingerprints()


def fingerprint(kernel: Kernel) -> str:
    """Return the hash of one kernel's name and code."""
    assert isinstance(kernel.function, FunctionType)
    return _digest(kernel.name, _FINGERPRINTS.fingerprint(kernel.function))[:16]


def description() -> str:
    """Return the environment in words: `znver4, numba 0.68.1, llvmlite 0.50.0, numpy 2.4.6, ...`"""
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"{target.CPU_NAME}, numba {numba_version()}, llvmlite {llvmlite.__version__}, "
        f"numpy {np.__version__}, Python {python}"
    )


def file_name(kernel: Kernel) -> str:
    safe = "".join(c if c.isalnum() or c in "_." else "_" for c in kernel.name)
    return f"{safe}-{fingerprint(kernel)}.o"

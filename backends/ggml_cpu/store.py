"""Where compiled kernels are kept: `<cache>/cpu/<environment>/<kernel>-<fingerprint>.o`.

The environment covers what every kernel depends on (versions, CPU, vocabulary); the fingerprint
covers one kernel: its bytecode and, in turn, the helpers and constants it uses. So an edit
recompiles exactly the kernels it changes. `LLAMA_PY_CACHE` puts the cache elsewhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import llvmlite
import numpy as np
import platformdirs

from ggml_cpu import target
from ggml_cpu.bounds import CHECKED
from ggml_cpu.kernel import Kernel

MAGIC = b"llama-py object\n"
UNUSED_DAYS = 30
_CORE = (
    "target.py", "params.py", "symbols.py", "frontend.py", "helpers.py", "passes.py", "codegen.py",
    "vocabulary/*.py",
)  # fmt: skip
_CHECKS = ("faults.py", "bounds/check.py", "bounds/instrument.py")
_FIXED = ("ggml_cpu.vocabulary", "numpy", "math")  # part of the environment
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def environment() -> str:
    """Hash of what all kernels depend on; with a suffix for those that check their bounds."""
    here = Path(__file__).parent
    patterns = (*_CORE, *_CHECKS) if CHECKED else _CORE
    sources = sorted(path for pattern in patterns for path in here.glob(pattern))
    digest = _digest(
        version("numba"),
        llvmlite.__version__,
        version("numpy"),
        sys.version,
        target.TRIPLE,
        target.CPU_NAME,
        target.feature_string(),
        *(path.read_text(encoding="utf-8") for path in sources),
    )[:16]
    return f"{digest}-bounds" if CHECKED else digest


def _module_name(module: ModuleType) -> str:
    """The name, read without waking a lazy module."""
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
        self._lock = threading.RLock()  # what one thread has begun is not recursion to another

    def of(self, function: FunctionType) -> str:
        """Hash of bytecode, constants, and everything reached through globals and closures."""
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
            return self.of(value)
        return getattr(value, "__qualname__", type(value).__qualname__)

    def _module(self, module: ModuleType, names: list[str]) -> str:
        """The name, and the members that may be meant; fixed modules have none to follow."""
        name = _module_name(module)
        if name.startswith(_FIXED):
            return name
        members = [self._value(vars(module)[n], names) for n in names if n in vars(module)]
        return repr((name, members))


_FINGERPRINTS = Fingerprints()


def fingerprint(kernel: Kernel) -> str:
    """Hash of one kernel's code, name included."""
    assert isinstance(kernel.function, FunctionType)
    return _digest(kernel.name, _FINGERPRINTS.of(kernel.function))[:16]


def _root() -> Path:
    chosen = os.environ.get("LLAMA_PY_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("llama-py"))


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """A cache for this process alone, removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="llama-py-")


def directory() -> Path:
    """This environment's directory, which need not exist; marked as used today."""
    path = _root() / "cpu" / environment()
    with suppress(OSError):
        os.utime(path)
    return path


def writable_directory() -> Path:
    """The same, made if need be; a temporary one where nothing can be written there."""
    path = directory()
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            _remove_unused(path.parent)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "no permission to write")
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {path} ({error.strerror}); every start will "
            "compile them again. Set LLAMA_PY_CACHE to a writable directory",
            RuntimeWarning,
            stacklevel=2,
        )
        return Path(_temporary().name)
    return path


def _remove_unused(parent: Path) -> None:
    """Delete the directories of environments not used for UNUSED_DAYS."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for path in parent.iterdir():
        with suppress(OSError):  # another process may be doing the same
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


def file_name(kernel: Kernel) -> str:
    safe = "".join(c if c.isalnum() or c in "_." else "_" for c in kernel.name)
    return f"{safe}-{fingerprint(kernel)}.o"


def read(path: Path) -> bytes | None:
    """The object code in `path`, or None where there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    start = len(MAGIC) + 32
    code = content[start:]
    return code if content[:start] == _header(code) else None


def _header(code: bytes) -> bytes:
    return MAGIC + hashlib.sha256(code).digest()


def write(path: Path, code: bytes) -> None:
    """Store object code so that another process sees all of it or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_header(code) + code)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

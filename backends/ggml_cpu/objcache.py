"""Kernels as native functions: from the object cache, or compiled first where they are missing.

Loading needs llvmlite only; Numba is imported by the processes that compile, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding as llvm

from ggml_cpu import store
from ggml_cpu.codegen import machine
from ggml_cpu.compile import Progress, compile_kernels
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.symbols import bind_externals, symbol_of
from ggml_py.errors import BackendError

DRIVER = "ggml_cpu.driver"


class Library:
    """Native kernels loaded so far, by the name of their object file."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._engines: list[llvm.ExecutionEngine] = []

    def load(self, kernels: Sequence[Kernel], progress: Progress | None) -> dict[str, int]:
        """Address of every kernel by its name, loading and compiling what is missing."""
        wanted = {store.file_name(k): k for k in kernels}
        new = {f: k for f, k in wanted.items() if f not in self._addresses}
        if new:
            self._add(new, _objects(new, progress))
        return {k.name: self._addresses[f] for f, k in wanted.items()}

    def _add(self, kernels: dict[str, Kernel], objects: dict[str, bytes]) -> None:
        if not self._engines:
            bind_externals()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
        for code in objects.values():
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._engines.append(engine)
        for file, kernel in kernels.items():
            self._addresses[file] = engine.get_function_address(symbol_of(kernel.name))


def _objects(kernels: dict[str, Kernel], progress: Progress | None) -> dict[str, bytes]:
    """Object code by file name; what the cache lacks, or has damaged, is compiled."""
    directory = store.directory()
    found = {file: store.read(directory / file) for file in kernels}
    missing = [kernels[file] for file, code in found.items() if code is None]
    if missing:
        directory = store.writable_directory()
        compile_kernels(missing + _soon(directory, kernels), directory, progress)
        found |= {file: store.read(directory / file) for file in map(store.file_name, missing)}
    lost = [kernels[file].name for file, code in found.items() if code is None]
    if lost:
        raise BackendError(
            f"compiled kernels vanished from {directory}: {', '.join(lost)}; "
            "set LLAMA_PY_CACHE to a directory that nothing else clears"
        )
    return {file: code for file, code in found.items() if code is not None}


def _soon(directory: Path, kernels: dict[str, Kernel]) -> list[Kernel]:
    """What runs any kernel: where that is missing, too, it is compiled beside the first."""
    driver = {store.file_name(k): k for k in REGISTRY.kernels.values() if k.module == DRIVER}
    return [k for f, k in driver.items() if f not in kernels and not (directory / f).exists()]


_LIBRARY = Library()


def load_kernels(
    kernels: Sequence[Kernel | str], progress: Progress | None = None
) -> dict[str, int]:
    """Native addresses by kernel name; kernels are given as such or by their names.

    `progress(done, total, name)` reports compilation. Raises BackendError where one fails.
    """
    declared = [k if isinstance(k, Kernel) else REGISTRY.kernels[k] for k in kernels]
    return _LIBRARY.load(declared, progress)

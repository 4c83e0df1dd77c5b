"""Kernels as native functions: from the object cache, or compiled first where they are missing.

Numba is imported by the processes that compile, if any, and LLVM where something cannot be loaded
without it (elf.py); so is what starts such processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from ggml_cpu import elf
from ggml_cpu.fingerprints import file_name
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.store import STORE
from ggml_cpu.symbols import externals, symbol_of
from ggml_py.errors import BackendError
from ggml_py.machine.building import building

if TYPE_CHECKING:
    from ggml_cpu.compile import Following, Progress

DRIVER = "ggml_cpu.driver"


class LoadedKernels:
    """Native kernels loaded so far, by the name of their object file."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._images: list[elf.LoadedCode] = []  # while they are kept, so is their code

    def load(
        self,
        kernels: Sequence[Kernel],
        progress: Progress | None,
        whole: bool = True,
        following: Following = tuple,
    ) -> dict[str, int]:
        """Return every kernel's address by its name; missing ones are loaded or compiled."""
        wanted = {file_name(k): k for k in kernels}
        new = [k for f, k in wanted.items() if f not in self._addresses]
        if new:
            with building():
                self._load(new, progress, whole, following)
        return {k.name: self._addresses[f] for f, k in wanted.items()}

    def lacks(self, kernels: Iterable[Kernel]) -> bool:
        """Return True if some kernels are neither loaded nor kept."""
        new = [k for k in kernels if file_name(k) not in self._addresses]
        return len(STORE.read(new)) < len(new)

    def _load(
        self, new: list[Kernel], progress: Progress | None, whole: bool, following: Following
    ) -> None:
        wrong = self._add(_objects(new, progress, whole, following))
        for kernel in wrong:
            STORE.forget(kernel)
        wrong = self._add(compile_kernels(wrong, progress)) if wrong else []
        if wrong:
            names = ", ".join(k.name for k in wrong)
            raise BackendError(
                f"LLVM cannot load the compiled code of kernels {names}; clear the cache with "
                "llama-py cache clear"
            )

    def _add(self, objects: dict[Kernel, bytes]) -> list[Kernel]:
        """Load object code; the kernels that are not in theirs."""
        addresses = self._place({symbol_of(k.name): code for k, code in objects.items()})
        wrong = []
        for kernel in objects:
            address = addresses.get(symbol_of(kernel.name))
            if address:
                self._addresses[file_name(kernel)] = address
            else:
                wrong.append(kernel)
        return wrong

    def _place(self, codes: dict[str, bytes]) -> dict[str, int]:
        """Return addresses of symbols, loading with LLVM the code that needs it."""
        addresses: dict[str, int] = {}
        if elf.is_possible() and (placed := elf.place(codes, externals())):
            self._images.append(placed)
            addresses |= placed.addresses
        if rest := {symbol: code for symbol, code in codes.items() if symbol not in addresses}:
            from ggml_cpu import mcjit

            image = mcjit.place(rest)
            self._images.append(image)
            addresses |= image.addresses
        return addresses


def compile_kernels(
    kernels: Sequence[Kernel],
    progress: Progress | None = None,
    whole: bool = True,
    following: Following = tuple,
) -> dict[Kernel, bytes]:
    """Compile kernels by compile.py, imported on first use."""
    from ggml_cpu import compile

    return compile.compile_kernels(kernels, progress, whole, following)


def _objects(
    kernels: Sequence[Kernel], progress: Progress | None, whole: bool, following: Following
) -> dict[Kernel, bytes]:
    """Return object code, compiling kernels that the cache lacks or has damaged."""
    found = STORE.read(kernels)
    missing = [k for k in kernels if k not in found]
    if missing:
        compiled = compile_kernels(missing + _soon(kernels), progress, whole, following)
        found |= {k: compiled[k] for k in missing}
    return found


def _soon(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels that run any kernel, if missing: they are compiled beside the first."""
    driver = [k for k in REGISTRY.kernels.values() if k.module == DRIVER and k not in kernels]
    there = STORE.read(driver)
    return [k for k in driver if k not in there]


_LIBRARY = LoadedKernels()


def load_kernels(
    kernels: Sequence[Kernel | str],
    progress: Progress | None = None,
    whole: bool = True,
    following: Following = tuple,
) -> dict[str, int]:
    """Return native addresses by kernel name; kernels are given as such or by their names.

    `progress(done, total, name)` reports compilation; not `whole`: others will follow soon, and
    `following()` are some of them. Raises BackendError where one fails.
    """
    declared = [k if isinstance(k, Kernel) else REGISTRY.kernels[k] for k in kernels]
    return _LIBRARY.load(declared, progress, whole, following)


def start_compilers(first: Callable[[], Sequence[Kernel]]) -> None:
    """Start the compilers if nothing was compiled before, or not all that is needed `first`."""
    if STORE.is_cold() or len(STORE.read(kernels := first())) < len(kernels):
        from ggml_cpu import compile

        compile.start()


def has_noted(key: str) -> bool:
    """Return True if a set of kernels was noted under a key and all of them are cached."""
    found = STORE.noted(key)
    if found is None:
        return False
    with suppress(ImportError):  # another version had a module that this one lacks
        for module in dict.fromkeys(module for module, _ in found):
            import_module(module)
    kernels = [REGISTRY.kernels.get(name) for _, name in found]
    return None not in kernels and STORE.has(k for k in kernels if k is not None)


def lacks(kernels: Iterable[Kernel]) -> bool:
    """Return True if loading these would mean to compile some of them."""
    return _LIBRARY.lacks(kernels)

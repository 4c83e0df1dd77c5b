"""Loads kernels as native functions from the object cache, and compiles missing kernels.

Only child processes that compile import Numba. LLVM is imported only for code that elf.py cannot
load, and compile.py only if a kernel is missing.
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
from ggml_cpu.symbols import externals, kernel_symbol
from ggml_py.errors import BackendError
from ggml_py.machine.building import building

if TYPE_CHECKING:
    from ggml_cpu.compile import Following, Progress

DRIVER = "ggml_cpu.driver"


class LoadedKernels:
    """Addresses of the loaded kernels, by the name of their object file."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._images: list[elf.LoadedCode] = []  # keep the code loaded

    def load(
        self,
        kernels: Sequence[Kernel],
        progress: Progress | None,
        whole: bool = True,
        following: Following = tuple,
    ) -> dict[str, int]:
        """Return the kernels' addresses by name; load or compile missing kernels."""
        wanted = {file_name(k): k for k in kernels}
        new = [k for f, k in wanted.items() if f not in self._addresses]
        if new:
            with building():
                self._load(new, progress, whole, following)
        return {k.name: self._addresses[f] for f, k in wanted.items()}

    def lacks(self, kernels: Iterable[Kernel]) -> bool:
        """Return True if any kernel must be compiled: it is not loaded and not cached."""
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
        """Load object code; return the kernels with invalid code or without the symbol."""
        addresses = self._place({kernel_symbol(k.name): code for k, code in objects.items()})
        wrong = []
        for kernel in objects:
            address = addresses.get(kernel_symbol(kernel.name))
            if address:
                self._addresses[file_name(kernel)] = address
            else:
                wrong.append(kernel)
        return wrong

    def _place(self, codes: dict[str, bytes]) -> dict[str, int]:
        """Load code and return the addresses of its symbols; LLVM loads the rest after elf.py."""
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
    """Compile kernels with compile.py, which is imported on first use."""
    from ggml_cpu import compile

    return compile.compile_kernels(kernels, progress, whole, following)


def _objects(
    kernels: Sequence[Kernel], progress: Progress | None, whole: bool, following: Following
) -> dict[Kernel, bytes]:
    """Return object code; compile kernels that are missing or damaged in the cache."""
    found = STORE.read(kernels)
    missing = [k for k in kernels if k not in found]
    if missing:
        compiled = compile_kernels(missing + _soon(kernels), progress, whole, following)
        found |= {k: compiled[k] for k in missing}
    return found


def _soon(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the executor's uncached kernels, to compile with the first: every run needs them."""
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
    """Load kernels (compile them if missing) and return their native addresses by name.

    Args:
        kernels: Kernels or names of declared kernels.
        progress: Called with (done, total, name) after each compiled kernel.
        whole: False if an unknown number of kernels will follow soon.
        following: Returns some of the kernels that will follow.

    Raises:
        BackendError: A kernel does not compile or load.
    """
    declared = [k if isinstance(k, Kernel) else REGISTRY.kernels[k] for k in kernels]
    return _LIBRARY.load(declared, progress, whole, following)


def start_compilers(first: Callable[[], Sequence[Kernel]]) -> None:
    """Start the child processes if the cache is empty or lacks a kernel of `first()`."""
    if STORE.is_cold() or len(STORE.read(kernels := first())) < len(kernels):
        from ggml_cpu import compile

        compile.start()


def has_noted(key: str) -> bool:
    """Return True if the kernel set stored under `key` exists and is completely cached."""
    found = STORE.read_set(key)
    if found is None:
        return False
    with suppress(ImportError):  # a module of another version
        for module in dict.fromkeys(module for module, _ in found):
            import_module(module)
    kernels = [REGISTRY.kernels.get(name) for _, name in found]
    return None not in kernels and STORE.has(k for k in kernels if k is not None)


def lacks(kernels: Iterable[Kernel]) -> bool:
    """Return True if any of the kernels must still be compiled."""
    return _LIBRARY.lacks(kernels)

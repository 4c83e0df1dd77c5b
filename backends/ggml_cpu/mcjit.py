"""Loads object code with LLVM (MCJIT), on all systems and CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import llvmlite.binding as llvm

from ggml_cpu.codegen import machine
from ggml_cpu.elf import LoadedCode
from ggml_cpu.symbols import externals


@cache
def _bind_externals() -> None:
    for name, address in externals().items():
        llvm.add_symbol(name, address)


def place(codes: Mapping[str, bytes]) -> LoadedCode:
    """Load object files, keyed by the symbol to look up in each, into executable memory.

    The result lacks the symbols of invalid files and of files that do not define the symbol.
    """
    _bind_externals()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
    for code in codes.values():
        with suppress(RuntimeError):  # not an object file
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    addresses = {symbol: engine.get_function_address(symbol) for symbol in codes}
    return LoadedCode({symbol: at for symbol, at in addresses.items() if at}, engine)

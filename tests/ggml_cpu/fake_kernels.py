"""Kernels that LLVM compiles at once from a line of text: what is tested is where they are kept."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from ggml_cpu import codegen, compile, objcache, store
from ggml_cpu.codegen import machine
from ggml_cpu.kernel import Kernel
from ggml_cpu.symbols import kernel_symbol
from ggml_cpu.target import TRIPLE


def stores(symbol: str, value: int, more: str = "") -> bytes:
    """Object code: a kernel that stores a value where its first argument says."""
    text = f"""
        target triple = "{TRIPLE}"
        {more}
        define void @"{symbol}"(i64 %p, i64 %i, i64 %n) {{
            %at = inttoptr i64 %p to i64*
            store i64 {value}, i64* %at
            ret void
        }}
    """
    return bytes(machine().emit_object(llvm.parse_assembly(text)))


def fake(name: str, value: int) -> Kernel:
    """A kernel of a module that no other process can import, so it is compiled in this one."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(f"def f(p, ith, nth): return {value}", namespace)
    return Kernel(name, "", namespace["f"])  # type: ignore[arg-type]


def value_of(kernel: Kernel) -> int:
    """What the kernel stores; that is its function's constant, and so in its fingerprint."""
    function: Callable[..., int] = kernel.function  # type: ignore[assignment]
    return function(0, 0, 0)


def compiled_with_llvm(patch: pytest.MonkeyPatch) -> list[str]:
    """From now on fake kernels can be compiled; the names of those that were."""
    done: list[str] = []

    def object_code(kernel: Kernel) -> bytes:
        done.append(kernel.name)
        return stores(kernel_symbol(kernel.name), value_of(kernel))

    patch.setattr(codegen, "object_code", object_code)
    patch.setattr(objcache, "DRIVER", "nothing.else")
    return done


def new_process(patch: pytest.MonkeyPatch) -> None:
    """As if this were another process: nothing is in memory."""
    fresh = store.Store()
    for module in (objcache, compile):
        patch.setattr(module, "STORE", fresh)


def run(*kernels: Kernel) -> list[int]:
    """Load kernels as a process does that has none yet, and run them."""
    library = objcache.LoadedKernels()  # has the code, and so must stay
    addresses = library.load(kernels, None)
    words = np.zeros(len(kernels), np.int64)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    for i, kernel in enumerate(kernels):
        kind(addresses[kernel.name])(words[i:].ctypes.data, 0, 1)
    return [int(word) for word in words]

"""Numba's front end alone: a kernel's bytecode typed and lowered to one LLVM module.

Numba would optimise every helper by itself and turn it into machine code that nobody calls; ours
are inlined and optimised once, with the kernel (`codegen`). Importing this imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import compiler, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.extending import register_jitable
from numba.core.registry import cpu_target

import ggml_cpu.vocabulary.vec  # noqa: F401  (wakes the lazy package)
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.symbols import symbol_of


class _Library(JITCodeLibrary):
    """LLVM modules to link into others: neither optimised nor compiled."""

    def _optimize_functions(self, ll_module: llvm.ModuleRef) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


def _never_called(*compiled: object) -> Callable[..., None]:
    """What stands for a helper's entry point: Numba keeps one, of a builtin type, by identity."""
    return [].append


@contextmanager
def _no_machine_code() -> Iterator[None]:
    context = cpu_target.target_context
    codegen = context.codegen()
    codegen._library_class, context.get_executable = _Library, _never_called
    try:
        yield
    finally:
        del codegen._library_class, context.get_executable


def _flags() -> compiler.Flags:
    """Numba's options: a bare function without Python objects, memory manager or exceptions."""
    flags = compiler.Flags()
    on = ("no_cpython_wrapper", "no_cfunc_wrapper", "no_compile", "forceinline")
    options = dict.fromkeys(on, True) | {"nrt": False, "error_model": "numpy"}
    for name, value in options.items():
        setattr(flags, name, value)
    return flags


def _register_helpers() -> None:
    """Tell Numba of the helpers declared since the last kernel."""
    for function in REGISTRY.new_helpers():
        register_jitable(
            forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
        )(function)


def lower(kernel: Kernel) -> llvm.ModuleRef:
    """The kernel as one LLVM module: a C function that calls what Numba made of the Python one.

    Raises numba.core.errors.NumbaError for Python that Numba does not know.
    """
    _register_helpers()
    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    lowering.refresh()
    arguments = (types.int64,) * 3
    with global_compiler_lock, _no_machine_code():
        compiled = compiler.compile_extra(
            typing, lowering, kernel.function, arguments, types.void, _flags(), {}
        )
        library = compiled.library
        outer = library.create_ir_module(symbol_of(kernel.name))
        signature = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 3)
        entry = ir.Function(outer, signature, symbol_of(kernel.name))
        builder = ir.IRBuilder(entry.append_basic_block())
        inner = lowering.declare_function(outer, compiled.fndesc)
        lowering.call_conv.call_function(builder, inner, types.void, arguments, entry.args)
        builder.ret_void()
        library.add_ir_module(outer)
        module = library._final_module
        for needed in library._linking_libraries:
            module.link_in(needed._get_module_for_linking(), preserve=True)
    return module

"""Lowers a kernel's bytecode to one LLVM module with Numba's front end only.

Numba would optimize each helper separately and emit unused machine code. Here, helpers are
inlined and optimized once, with the kernel (codegen.py). Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import base, cgutils, compiler, types
from numba.core.codegen import CodeLibrary, CPUCodegen, CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import WarningsFixer  # type: ignore[attr-defined]
from numba.core.imputils import Registry
from numba.core.interpreter import Interpreter
from numba.core.ir import FunctionIR
from numba.core.postproc import PostProcessor
from numba.core.registry import cpu_target
from numba.core.transforms import canonicalize_cfg
from numba.core.typing import mathdecl
from numba.core.typing.npydecl import NumpyRulesArrayOperator
from numba.core.typing.templates import Signature, builtin_registry
from numba.cpython import mathimpl

import ggml_cpu.vocabulary.vec  # noqa: F401  (executes the lazy package)
from ggml_cpu import extremes
from ggml_cpu.bounds import CHECKED
from ggml_cpu.bounds.instrument import instrument
from ggml_cpu.helpers import helper_type, no_entry
from ggml_cpu.kernel import Kernel
from ggml_cpu.passes import Pipeline, flags
from ggml_cpu.symbols import kernel_symbol


class Library(JITCodeLibrary):
    """Unoptimized LLVM modules of a function, and the libraries of the functions that it calls."""

    def __init__(self, codegen: CPUCodegen, name: str) -> None:
        super(CPUCodeLibrary, self).__init__(codegen, name)  # skips creating an empty module
        self.modules: list[bytes] = []
        self.called: dict[CodeLibrary, None] = {}

    def add_linking_library(self, library: CodeLibrary) -> None:
        self.called[library] = None

    def add_ir_module(self, module: ir.Module) -> None:
        for function in module.functions:
            if function.blocks and "alwaysinline" not in function.attributes:
                function.attributes.add("noinline")
        text = cgutils.normalize_ir_text(str(module))
        self.modules.append(llvm.parse_assembly(text).as_bitcode())

    def finalize(self) -> None:
        self._finalized = True

    def link_libraries(self, module: llvm.ModuleRef) -> llvm.ModuleRef:
        """Link this library and all libraries that it calls, recursively, into the module.

        Numba's helpers also declare its memory manager. It is not linked: code that still calls it
        after optimization is refused (codegen.py).
        """
        wanted: list[CodeLibrary] = [self]
        seen: set[CodeLibrary] = set()
        while wanted:
            library = wanted.pop()
            if isinstance(library, Library) and library not in seen:
                seen.add(library)
                wanted += library.called
                for code in library.modules:
                    module.link_in(llvm.parse_bitcode(code))
        return module


class CheckedLibrary(Library):
    """A library of functions that check the bounds of every memory access (bounds/)."""

    def add_ir_module(self, module: ir.Module) -> None:
        instrument(module)
        super().add_ir_module(module)


Peephole = Callable[[FunctionIR], FunctionIR]
Resolve = Callable[[types.Type, tuple[types.Type, ...], dict[str, types.Type]], Signature | None]


def _cache_resolve(resolve: Resolve) -> Resolve:
    """Return `resolve` with a cache by function and argument types.

    Without it, Numba tries every NumPy ufunc on every `+`.
    """

    def resolve_cached(
        function: types.Type, args: tuple[types.Type, ...], kws: dict[str, types.Type]
    ) -> Signature | None:
        if kws:
            return resolve(function, args, kws)
        asked = function, tuple(args)
        if asked not in _SIGNATURES:
            found = resolve(function, args, kws)
            if found is None:
                return None
            _SIGNATURES[asked] = found
        return _SIGNATURES[asked]

    return resolve_cached


_SIGNATURES: dict[tuple[types.Type, tuple[types.Type, ...]], Signature] = {}


def _helpers_first(resolve: Callable[[object], types.Type]) -> Callable[[object], types.Type]:
    """Return `resolve` with a shortcut: helpers are typed before Numba tries its own types."""

    def resolve_helper(value: object) -> types.Type:
        return helper_type(value) or resolve(value)

    return resolve_helper


def _no_warnings(*_: object, **where: object) -> AbstractContextManager[None]:
    """Replace Numba's collection of warnings around every step of type inference."""
    return nullcontext()


def _few_peepholes(
    of: Interpreter, peepholes: Iterable[Peephole], func_ir: FunctionIR
) -> FunctionIR:
    """Skip the peepholes for `with` and long dictionaries, which scan all variables."""
    for change in peepholes:
        if change.__name__ not in _IDLE_PEEPHOLES:
            func_ir = change(func_ir)
    return func_ir


_IDLE_PEEPHOLES = ("peep_hole_delete_with_exit", "peep_hole_fuse_dict_add_updates")


def _no_arrays(*_: object) -> None:
    """Match no signature: kernels have no arrays, but Numba tries every NumPy ufunc on each `+`."""


_run = PostProcessor.run


def _without_lifetimes(
    of: PostProcessor, emit_dels: bool = False, extend_lifetimes: bool = False
) -> None:
    """Skip variable lifetimes: only reference counts and generators need them."""
    if emit_dels or of.func_ir.is_generator:
        _run(of, emit_dels, extend_lifetimes)
        return
    of.func_ir.blocks = canonicalize_cfg(of.func_ir.blocks)
    of.func_ir.generator_info = None


# Importing these registers Numba's operations on numbers and tuples.
for _name in (
    "core.typing.builtins",
    "cpython.builtins",
    "cpython.iterators",
    "cpython.numbers",
    "cpython.rangeobj",
    "cpython.tupleobj",
):
    import_module(f"numba.{_name}")


def _constant_bytes(
    context: base.BaseContext, builder: ir.IRBuilder, kind: types.Bytes, value: bytes
) -> ir.Value:
    """Lower a bytes constant like numba.np.arrayobj, which takes long to import (half of Numba)."""
    return context.make_constant_array(builder, kind, np.frombuffer(value, np.uint8))


_TABLES = Registry("tables")
_TABLES.lower_constant(types.Bytes)(_constant_bytes)
_HAS_LOC = cache(base._has_loc)
_SIZE_OF = cache(cpu_target.target_context.get_abi_sizeof)


@contextmanager
def _replaced_attribute(changed: object, name: str, value: object) -> Iterator[None]:
    """Set an attribute during the `with` block, then restore it.

    Importing unittest.mock for this would add a tenth of Numba's import time.
    """
    own = vars(changed)
    restore = partial(setattr, changed, name, own[name]) if name in own else None
    setattr(changed, name, value)
    try:
        yield
    finally:
        restore() if restore else delattr(changed, name)


@contextmanager
def _front_end(library: type[Library]) -> Iterator[None]:
    """Patch Numba during the `with` block, so that other uses of Numba are not affected.

    In the block, Numba emits no machine code, has no arrays, strings and lists, and does not load
    extensions for each function.
    """
    typing, lowering = cpu_target.typing_context, cpu_target.target_context

    def install() -> None:
        for registry in (mathimpl.registry, _TABLES, extremes.LOWERING, *lowering._registries):
            lowering.install_registry(registry)

    def declare() -> None:
        for registry in (extremes.TYPING, mathdecl.registry, builtin_registry):
            typing.install_registry(registry)

    changes = (
        (lowering.codegen(), "_library_class", library),
        (lowering, "get_executable", no_entry),
        (lowering, "post_lowering", lambda *_: None),  # would link Numba's memory manager
        (lowering, "load_additional_registries", install),
        (typing, "load_additional_registries", declare),
        (typing, "_load_builtins", lambda: None),
        (typing, "resolve_value_type", _helpers_first(typing.resolve_value_type)),
        (typing, "resolve_function_type", _cache_resolve(typing.resolve_function_type)),
        (PostProcessor, "run", _without_lifetimes),
        (NumpyRulesArrayOperator, "generic", _no_arrays),
        (Interpreter, "post_process", _few_peepholes),
        (WarningsFixer, "catch_warnings", _no_warnings),
        (base, "_has_loc", _HAS_LOC),
        (lowering, "get_abi_sizeof", _SIZE_OF),
    )
    with ExitStack() as stack:
        for changed, name, value in changes:
            stack.enter_context(_replaced_attribute(changed, name, value))
        lowering.refresh()
        yield


def lower(kernel: Kernel) -> llvm.ModuleRef:
    """Lower a kernel to one LLVM module with a C entry point that calls the compiled function.

    Raises numba.core.errors.NumbaError for Python that Numba does not support.
    """
    library = CheckedLibrary if CHECKED else Library
    signature = types.void(*[types.int64] * 3)
    return lower_function(kernel_symbol(kernel.name), kernel.function, signature, library)


def lower_function(
    symbol: str, function: Callable[..., object], signature: Signature, library: type[Library]
) -> llvm.ModuleRef:
    """Lower a function to a module with the C function `symbol`, of int64 arguments and result."""
    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    arguments, result = signature.args, signature.return_type
    with global_compiler_lock, _front_end(library):
        compiled = compiler.compile_extra(
            typing, lowering, function, arguments, result, flags(), {}, pipeline_class=Pipeline
        )
        outer = lowering.create_module(symbol)
        to = ir.VoidType() if result == types.void else ir.IntType(64)
        entry = ir.Function(outer, ir.FunctionType(to, [ir.IntType(64)] * len(arguments)), symbol)
        builder = ir.IRBuilder(entry.append_basic_block())
        inner = lowering.declare_function(outer, compiled.fndesc)
        called = lowering.call_conv.call_function(builder, inner, result, arguments, entry.args)
        builder.ret_void() if result == types.void else builder.ret(called[1])
        module: llvm.ModuleRef = compiled.library.link_libraries(llvm.parse_assembly(str(outer)))
    return module

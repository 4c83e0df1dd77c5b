"""Numba's front end alone: a kernel's bytecode typed and lowered to one LLVM module.

Numba would optimise every helper by itself and turn it into machine code that nobody calls; ours
are inlined and optimised once, with the kernel (`codegen`). Importing this imports Numba.
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

import ggml_cpu.vocabulary.vec  # noqa: F401  (wakes the lazy package)
from ggml_cpu import extremes
from ggml_cpu.bounds import CHECKED
from ggml_cpu.bounds.instrument import instrument
from ggml_cpu.helpers import helper_type, no_entry
from ggml_cpu.kernel import Kernel
from ggml_cpu.passes import Pipeline, flags
from ggml_cpu.symbols import symbol_of


class Library(JITCodeLibrary):
    """LLVM modules to link into others, and the libraries they call; nothing is optimised here."""

    def __init__(self, codegen: CPUCodegen, name: str) -> None:
        super(CPUCodeLibrary, self).__init__(codegen, name)  # without an empty module to link into
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

    def linked(self, module: llvm.ModuleRef) -> llvm.ModuleRef:
        """The module with this library and all it calls in it.

        Numba's own helpers name its memory manager, too; what really needed that does not link.
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
    """A library whose functions check what they touch (bounds/)."""

    def add_ir_module(self, module: ir.Module) -> None:
        instrument(module)
        super().add_ir_module(module)


Peephole = Callable[[FunctionIR], FunctionIR]
Resolve = Callable[[types.Type, tuple[types.Type, ...], dict[str, types.Type]], Signature | None]


def _remembering(resolve: Resolve) -> Resolve:
    """`resolve`, asked once for each function and its argument types: Numba tries every NumPy ufunc
    on every `+`."""

    def remembered(
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

    return remembered


_SIGNATURES: dict[tuple[types.Type, tuple[types.Type, ...]], Signature] = {}


def _helpers_first(resolve: Callable[[object], types.Type]) -> Callable[[object], types.Type]:
    """The type of a global value; of helpers Numba would ask all it knows of types first."""

    def resolved(value: object) -> types.Type:
        return helper_type(value) or resolve(value)

    return resolved


def _no_warnings(*_: object, **where: object) -> AbstractContextManager[None]:
    """Numba collects them around every step of its type inference."""
    return nullcontext()


def _few_peepholes(
    of: Interpreter, peepholes: Iterable[Peephole], func_ir: FunctionIR
) -> FunctionIR:
    """Without those for `with` and for long dictionaries, which look through every variable."""
    for change in peepholes:
        if change.__name__ not in _IDLE_PEEPHOLES:
            func_ir = change(func_ir)
    return func_ir


_IDLE_PEEPHOLES = ("peep_hole_delete_with_exit", "peep_hole_fuse_dict_add_updates")


def _no_arrays(*_: object) -> None:
    """Numba tries every NumPy ufunc on every `+`; no operand is an array."""


_run = PostProcessor.run


def _without_lifetimes(
    of: PostProcessor, emit_dels: bool = False, extend_lifetimes: bool = False
) -> None:
    """When variables die matters to reference counts and generators only."""
    if emit_dels or of.func_ir.is_generator:
        _run(of, emit_dels, extend_lifetimes)
        return
    of.func_ir.blocks = canonicalize_cfg(of.func_ir.blocks)
    of.func_ir.generator_info = None


# What declares itself when it is imported: operations on numbers and tuples.
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
    """As numba.np.arrayobj does it; to import that takes as long as all that is wanted of Numba."""
    return context.make_constant_array(builder, kind, np.frombuffer(value, np.uint8))


_TABLES = Registry("tables")
_TABLES.lower_constant(types.Bytes)(_constant_bytes)
_HAS_LOC = cache(base._has_loc)
_SIZE_OF = cache(cpu_target.target_context.get_abi_sizeof)


@contextmanager
def _with(changed: object, name: str, value: object) -> Iterator[None]:
    """Meanwhile the attribute has this value (unittest.mock takes a tenth of Numba to import)."""
    own = vars(changed)
    restore = partial(setattr, changed, name, own[name]) if name in own else None
    setattr(changed, name, value)
    try:
        yield
    finally:
        restore() if restore else delattr(changed, name)


@contextmanager
def _front_end(library: type[Library]) -> Iterator[None]:
    """Meanwhile Numba makes no machine code, knows no arrays, strings and lists, and looks for no
    extensions at each function. What it is used for otherwise has all of that."""
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
        (lowering, "post_lowering", lambda *_: None),  # links Numba's memory manager
        (lowering, "load_additional_registries", install),
        (typing, "load_additional_registries", declare),
        (typing, "_load_builtins", lambda: None),
        (typing, "resolve_value_type", _helpers_first(typing.resolve_value_type)),
        (typing, "resolve_function_type", _remembering(typing.resolve_function_type)),
        (PostProcessor, "run", _without_lifetimes),
        (NumpyRulesArrayOperator, "generic", _no_arrays),
        (Interpreter, "post_process", _few_peepholes),
        (WarningsFixer, "catch_warnings", _no_warnings),
        (base, "_has_loc", _HAS_LOC),
        (lowering, "get_abi_sizeof", _SIZE_OF),
    )
    with ExitStack() as stack:
        for changed, name, value in changes:
            stack.enter_context(_with(changed, name, value))
        lowering.refresh()
        yield


def lower(kernel: Kernel) -> llvm.ModuleRef:
    """The kernel as one LLVM module: a C function that calls what Numba made of the Python one.

    Raises numba.core.errors.NumbaError for Python that Numba does not know.
    """
    library = CheckedLibrary if CHECKED else Library
    signature = types.void(*[types.int64] * 3)
    return lower_function(symbol_of(kernel.name), kernel.function, signature, library)


def lower_function(
    symbol: str, function: Callable[..., object], signature: Signature, library: type[Library]
) -> llvm.ModuleRef:
    """A C function of that name, which calls the Python one; signature: of int64, or void."""
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
        module: llvm.ModuleRef = compiled.library.linked(llvm.parse_assembly(str(outer)))
    return module

"""Compile one kernel in this process: Numba's front end, then one LLVM optimisation of all of it.

Numba is imported when the first kernel is compiled. To look at the result: `optimized`, `assembly`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm

from ggml_cpu import target
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.symbols import EXTERNALS, symbol_of
from ggml_py.errors import BackendError


def _register_helpers() -> None:
    """Numba looks for new words once, before it compiles: load the vocabulary by then."""
    from numba.core.extending import register_jitable

    import ggml_cpu.vocabulary.vec  # noqa: F401  (wakes the lazy package)

    for function in REGISTRY.new_helpers():
        register_jitable(forceinline=True, error_model="numpy")(function)


def _flags() -> Any:
    """Numba's options: a bare function without Python objects, memory manager or exceptions."""
    flags = import_module("numba.core.compiler").Flags()
    on = ("no_cpython_wrapper", "no_cfunc_wrapper", "no_compile", "forceinline")
    options = dict.fromkeys(on, True) | {"nrt": False, "error_model": "numpy"}
    for name, value in options.items():
        setattr(flags, name, value)
    return flags


@contextmanager
def _unoptimised() -> Iterator[None]:
    """Numba optimises every helper by itself; ours are inlined and optimised once, as a whole."""
    config: Any = import_module("numba.core.config")
    level = config.OPT
    config.OPT = type(level)(0)
    try:
        yield
    finally:
        config.OPT = level


def _lower(kernel: Kernel) -> Any:
    """The kernel as one LLVM module: a C function that calls what Numba made of the Python one."""
    from llvmlite import ir
    from numba.core import types
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    lowering.refresh()
    arguments = (types.int64,) * 3
    word = ir.IntType(64)
    with global_compiler_lock, _unoptimised():
        compiled = import_module("numba.core.compiler").compile_extra(
            typing, lowering, kernel.function, arguments, types.void, _flags(), {}
        )
        library = compiled.library
        outer = library.create_ir_module(symbol_of(kernel.name))
        entry = ir.Function(
            outer, ir.FunctionType(ir.VoidType(), [word] * 3), symbol_of(kernel.name)
        )
        builder = ir.IRBuilder(entry.append_basic_block())
        inner = lowering.declare_function(outer, compiled.fndesc)
        lowering.call_conv.call_function(builder, inner, types.void, arguments, entry.args)
        builder.ret_void()
        library.add_ir_module(outer)
        module = library._final_module
        for needed in library._linking_libraries:
            module.link_in(needed._get_module_for_linking(), preserve=True)
    return module


def machine() -> Any:
    """LLVM's code generator for the target CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(target.TRIPLE).create_target_machine(
        cpu=target.CPU_NAME,
        features=target.feature_string(),
        opt=3,
        reloc="static" if target.X86 else "default",
        codemodel="jitdefault",
        jit=True,
    )


def optimized(kernel: Kernel) -> Any:
    """The kernel's LLVM module, everything inlined and optimised (`str()` of it is readable IR)."""
    _register_helpers()
    module = _lower(kernel)
    entry = symbol_of(kernel.name)
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != entry:
            item.linkage = "internal"
    generator = machine()
    module.triple = target.TRIPLE
    module.data_layout = str(generator.target_data)
    module.verify()
    builder = llvm.create_pass_builder(generator, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    _refuse_unknown_calls(kernel, module)
    return module


def _refuse_unknown_calls(kernel: Kernel, module: Any) -> None:
    """An unbound symbol would end the process when the code is loaded; say it here instead."""
    declared = (f.name for f in module.functions if f.is_declaration)
    unknown = [n for n in declared if not n.startswith("llvm.") and n not in EXTERNALS]
    if unknown:
        raise BackendError(
            f"kernel {kernel.name}: the compiled code calls {', '.join(unknown)}, which kernels "
            "may not use; it raises an exception, allocates, or uses a Python object"
        )


def assembly(kernel: Kernel) -> str:
    """The machine code as text, to look at."""
    return str(machine().emit_assembly(optimized(kernel)))


def object_code(kernel: Kernel) -> bytes:
    """The kernel compiled for the target CPU. Raises BackendError with Numba's message."""
    from numba.core.errors import NumbaError

    try:
        return bytes(machine().emit_object(optimized(kernel)))
    except NumbaError as error:
        raise BackendError(f"kernel {kernel.name} ({kernel.module}): {error}") from error

"""Compiles one kernel in this process: Numba's front end, then one LLVM pass pipeline.

Numba is imported when the first kernel is compiled. `optimize_kernel` and `assembly` return the
result as LLVM IR and as assembly, for inspection.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from ggml_cpu import target
from ggml_cpu.bounds import CHECKED
from ggml_cpu.bounds.check import check_access
from ggml_cpu.bounds.instrument import CHECK, complete
from ggml_cpu.kernel import Kernel
from ggml_cpu.numba_version import numba_version
from ggml_cpu.symbols import EXTERNALS, kernel_symbol
from ggml_py.errors import BackendError


def machine() -> llvm.TargetMachine:
    """Return LLVM's code generator for the target CPU."""
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


def optimize_kernel(kernel: Kernel) -> llvm.ModuleRef:
    """Return the kernel's optimized LLVM module with all helpers inlined (`str()` gives the IR)."""
    from ggml_cpu.frontend import lower

    module = optimize(lower(kernel), kernel_symbol(kernel.name))
    if CHECKED:
        module = complete(module, kernel_symbol(kernel.name), _check())
    _refuse_unknown_calls(kernel, module)
    return module


@cache
def _check() -> bytes:
    """Return the bounds check (bounds/check.py) as optimized bitcode, not itself instrumented."""
    from numba.core import types

    from ggml_cpu.frontend import Library, lower_function

    signature = types.int64(*[types.int64] * 5)
    module = optimize(lower_function(CHECK, check_access, signature, Library), CHECK)
    return bytes(module.as_bitcode())


def optimize(module: llvm.ModuleRef, entry: str) -> llvm.ModuleRef:
    """Optimize a module in place at -O3; only the function `entry` keeps external linkage."""
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name != entry:
            item.linkage = "internal"
    generator = machine()
    module.triple = target.TRIPLE
    module.data_layout = str(generator.target_data)
    module.verify()
    builder = llvm.create_pass_builder(generator, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    return module


def _refuse_unknown_calls(kernel: Kernel, module: llvm.ModuleRef) -> None:
    """Raise BackendError if the code calls functions outside EXTERNALS.

    Loading code with an unbound symbol would abort the process.
    """
    declared = (f.name for f in module.functions if f.is_declaration)
    unknown = [n for n in declared if not n.startswith("llvm.") and n not in EXTERNALS]
    if unknown:
        raise BackendError(
            f"kernel {kernel.name}: the compiled code calls {', '.join(unknown)}, which kernels "
            "may not use; it raises an exception, allocates, or uses a Python object"
        )


def assembly(kernel: Kernel) -> str:
    """Return the kernel's assembly, for inspection."""
    return str(machine().emit_assembly(optimize_kernel(kernel)))


def object_code(kernel: Kernel) -> bytes:
    """Return a kernel's object code for the target CPU; BackendError with Numba's message."""
    numba_version()
    from numba.core.errors import NumbaError

    try:
        return bytes(machine().emit_object(optimize_kernel(kernel)))
    except NumbaError as error:
        raise BackendError(f"kernel {kernel.name} ({kernel.module}): {error}") from error

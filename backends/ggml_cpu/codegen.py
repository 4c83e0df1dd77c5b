"""Compile one kernel in this process: Numba's front end, then one LLVM optimisation of all of it.

Numba is imported when the first kernel is compiled. To look at the result: `optimized`, `assembly`.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from ggml_cpu import target
from ggml_cpu.kernel import Kernel
from ggml_cpu.numba_version import numba_version
from ggml_cpu.symbols import EXTERNALS, symbol_of
from ggml_py.errors import BackendError


def machine() -> llvm.TargetMachine:
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


def optimized(kernel: Kernel) -> llvm.ModuleRef:
    """The kernel's LLVM module, everything inlined and optimised (`str()` of it is readable IR)."""
    from ggml_cpu.frontend import lower

    module = lower(kernel)
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


def _refuse_unknown_calls(kernel: Kernel, module: llvm.ModuleRef) -> None:
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
    numba_version()
    from numba.core.errors import NumbaError

    try:
        return bytes(machine().emit_object(optimized(kernel)))
    except NumbaError as error:
        raise BackendError(f"kernel {kernel.name} ({kernel.module}): {error}") from error

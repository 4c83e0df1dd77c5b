"""Numba's compiler passes for kernels and helpers: functions on numbers, vectors and tuples.

Numba's default pipeline has further passes for Python objects, closures, generators, `with`,
arrays and parallel loops, and it repeats analyses after each pass.
"""

from __future__ import annotations

from numba.core import compiler
from numba.core.compiler_machinery import CompilerPass
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import (
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from ggml_cpu.bounds import CHECKED
from ggml_cpu.kernel import is_routine

_PASSES = (
    TranslateByteCode,
    FixupArgs,
    RewriteSemanticConstants,
    DeadBranchPrune,
    GenericRewrites,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    NativeLowering,
    NoPythonBackend,
)


class _Passes:
    """Runs the passes in order, without the work of Numba's PassManager between passes."""

    pipeline_name = "kernel"

    def __init__(self) -> None:
        self.exec_times: dict[str, float] = {}  # required by Numba, unused

    def run(self, state: compiler.StateDict) -> None:
        for step in _STEPS:
            if isinstance(step, NativeLowering):  # the pass reads this flag
                state.flags.forceinline = CHECKED or not is_routine(state.func_id.func)
            step.run_pass(state)
            if isinstance(step, DeadBranchPrune):  # unlike other passes, it does not do this
                state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)


def _steps() -> list[CompilerPass]:
    steps: list[CompilerPass] = [kind() for kind in _PASSES]
    for step in steps:
        step.analysis = {DeadBranchPrune: None}  # requires the analysis, but does not use it
    return steps


_STEPS = _steps()


class Pipeline(compiler.CompilerBase):
    """Compiler from bytecode to an LLVM module in `state.library`."""

    def define_pipelines(self) -> list[_Passes]:
        return [_Passes()]


def flags() -> compiler.Flags:
    """Return Numba's flags for functions without Python objects, memory manager or exceptions."""
    chosen = compiler.Flags()
    on = ("no_cpython_wrapper", "no_cfunc_wrapper", "no_compile", "forceinline")
    options = dict.fromkeys(on, True) | {"nrt": False, "error_model": "numpy"}
    for name, value in options.items():
        setattr(chosen, name, value)
    return chosen

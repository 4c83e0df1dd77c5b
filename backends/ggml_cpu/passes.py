"""Numba's passes for kernels and helpers: those that functions on numbers, vectors and tuples need.

Left out, against Numba's own list, is what serves Python objects, closures, generators, `with`,
arrays and parallel loops, and what is computed again after each pass for the sake of those.
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
    """Runs the passes one after the other, without what Numba's PassManager does between them."""

    pipeline_name = "kernel"

    def __init__(self) -> None:
        self.exec_times: dict[str, float] = {}  # Numba reports them; nobody here asks

    def run(self, state: compiler.StateDict) -> None:
        for step in _STEPS:
            if isinstance(step, NativeLowering):  # by now it is known to who was typed for it
                state.flags.forceinline = CHECKED or not is_routine(state.func_id.func)
            step.run_pass(state)
            if isinstance(step, DeadBranchPrune):  # blocks are gone; others see to that themselves
                state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)


def _steps() -> list[CompilerPass]:
    steps: list[CompilerPass] = [kind() for kind in _PASSES]
    for step in steps:
        step.analysis = {DeadBranchPrune: None}  # it asks for one, and uses none
    return steps


_STEPS = _steps()


class Pipeline(compiler.CompilerBase):
    """From bytecode to an LLVM module in `state.library`."""

    def define_pipelines(self) -> list[_Passes]:
        return [_Passes()]


def flags() -> compiler.Flags:
    """Numba's options: a bare function without Python objects, memory manager or exceptions."""
    chosen = compiler.Flags()
    on = ("no_cpython_wrapper", "no_cfunc_wrapper", "no_compile", "forceinline")
    options = dict.fromkeys(on, True) | {"nrt": False, "error_model": "numpy"}
    for name, value in options.items():
        setattr(chosen, name, value)
    return chosen

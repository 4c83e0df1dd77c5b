"""Be another CPU, one of `ggml_cpu.targets`: what kernels compile to there. Nothing can be run."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from unittest.mock import patch

import llvmlite.binding as llvm

from ggml_cpu import host_cpu
from ggml_cpu.targets import NAMED
from ggml_py.machine import host


def become(name: str) -> None:
    """Before anything else of the CPU backend is imported: its target is found as it would be on
    that CPU. Numba still sees this machine."""
    assert "ggml_cpu.target" not in sys.modules
    named = NAMED[name]
    triple = "x86_64-unknown-linux-gnu" if named.x86 else "aarch64-unknown-linux-gnu"
    os.environ["LLAMA_PY_CPU"] = name
    told = host_cpu.HostCPU(triple, named.cpu, dict.fromkeys(named.features, True))
    with (
        patch.object(host_cpu, "host_cpu", lambda: told),
        patch.object(host, "arm_features", lambda: set(named.features)),
        patch.object(host, "allows_amx", lambda: True),
    ):
        import ggml_cpu.target  # noqa: F401
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def main() -> None:
    """NAME KERNEL...: the assembly of these kernels for that CPU, each under a line `# KERNEL`."""
    become(sys.argv[1])
    from ggml_cpu.codegen import assembly
    from ggml_cpu.kernel import REGISTRY

    import_module("ggml_cpu.kernels.matrix.mul_mat")
    for kernel in sys.argv[2:]:
        print(f"# {kernel}\n{assembly(REGISTRY.kernels[kernel])}")


if __name__ == "__main__":
    main()

"""Compile kernels to object code: Numba's front end, then one LLVM optimisation of the whole kernel.

`compile_kernels` does it in child processes, so the calling one need not import Numba.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO, Any

import llvmlite.binding as llvm

from ggml_cpu import store, target
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.symbols import EXTERNALS, symbol_of
from ggml_py.errors import BackendError

Progress = Callable[[int, int, str], None]

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggml_cpu.compile import serve; serve()"
)


# ---- one kernel, in this process


class _Helpers:
    """Helpers already made known to Numba in this process."""

    registered = 0


def _register_helpers() -> None:
    """Numba looks for new words once, before it compiles: load the vocabulary by then."""
    import ggml_cpu.vocabulary.vec  # noqa: F401  (wakes the lazy package)
    from numba.core.extending import register_jitable

    for function in REGISTRY.helpers[_Helpers.registered :]:
        register_jitable(forceinline=True, error_model="numpy")(function)
    _Helpers.registered = len(REGISTRY.helpers)


def _flags() -> Any:
    from numba.core.compiler import Flags

    flags = Flags()
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.no_compile = True
    flags.enable_pyobject = False
    flags.nrt = False
    flags.forceinline = True
    flags.error_model = "numpy"
    return flags


def _lower(kernel: Kernel) -> Any:
    """The kernel as one LLVM module: a C function that calls what Numba made of the Python one."""
    from llvmlite import ir
    from numba.core import types
    from numba.core.compiler import compile_extra
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    lowering.refresh()
    arguments = (types.int64,) * 3
    word = ir.IntType(64)
    with global_compiler_lock:
        compiled = compile_extra(
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
    module.verify()
    builder = llvm.create_pass_builder(machine(), llvm.create_pipeline_tuning_options(3))
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


# ---- many kernels, in child processes


def compile_kernels(
    kernels: Sequence[Kernel], directory: Path, progress: Progress | None = None
) -> None:
    """Compile kernels into files of `directory`.

    `progress(done, total, name)` is called after each one. Raises BackendError for the first that
    fails; those finished before are kept.
    """
    here = [k for k in kernels if not _source(k.module)]
    total, done = len(kernels), 0
    for kernel in here:
        store.write(directory / store.file_name(kernel), object_code(kernel))
        done += 1
        if progress is not None:
            progress(done, total, kernel.name)
    there = [k for k in kernels if k not in here]
    if there:
        with _Children(there, directory) as children:
            for name in children.finished():
                done += 1
                if progress is not None:
                    progress(done, total, name)


def _source(module: str) -> str:
    """The file from which another process can import the module; "" where it cannot."""
    if module == "__main__" or not sys.executable:
        return ""
    return getattr(sys.modules.get(module), "__file__", None) or ""


class _Children:
    """Child processes that take kernels from a queue, one thread of ours looking after each."""

    def __init__(self, kernels: Sequence[Kernel], directory: Path) -> None:
        self._count = len(kernels)
        self._directory = directory
        self._jobs: queue.SimpleQueue[Kernel] = queue.SimpleQueue()
        for kernel in kernels:
            self._jobs.put(kernel)
        self._results: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _Children:
        for _ in range(min(_usable_cpus(), self._count)):
            messages = tempfile.TemporaryFile("w+")
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )
            thread = threading.Thread(target=self._feed, args=(process, messages), daemon=True)
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()

    def finished(self) -> Any:
        """Names of kernels as they get done. Raises BackendError for one that did not."""
        for _ in range(self._count):
            name, failure = self._results.get()
            if failure:
                raise BackendError(failure)
            yield name

    def _feed(self, process: subprocess.Popen[str], messages: IO[str]) -> None:
        with process, messages:
            while True:
                try:
                    kernel = self._jobs.get_nowait()
                except queue.Empty:
                    return
                failure = self._ask(process, kernel)
                if failure is None:
                    messages.seek(0)
                    tail = messages.read()[-2000:].strip()
                    failure = f"kernel {kernel.name}: the compiling process died. {tail}"
                self._results.put((kernel.name, failure))

    def _ask(self, process: subprocess.Popen[str], kernel: Kernel) -> str | None:
        """Have one kernel compiled: "" or the error message; None where the child is dead."""
        assert process.stdin is not None and process.stdout is not None
        path = self._directory / store.file_name(kernel)
        job = {
            "module": kernel.module,
            "source": _source(kernel.module),
            "kernel": kernel.name,
            "path": str(path),
        }
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            return None
        return str(json.loads(answer)) if answer else None


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serve() -> None:
    """The child's side: a job a line on stdin, an error message ("" for none) a line on stdout."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        answers.write(json.dumps(_answer(**json.loads(line))) + "\n")
        answers.flush()


def _answer(module: str, source: str, kernel: str, path: str) -> str:
    try:
        _import(module, source)
        declared = REGISTRY.kernels.get(kernel)
        if declared is None or store.file_name(declared) != Path(path).name:
            return f"kernel {kernel}: {module} has changed since this program started; start again"
        store.write(Path(path), object_code(declared))
    except BackendError as error:
        return str(error)
    except Exception as error:
        return f"kernel {kernel} ({module}): {type(error).__name__}: {error}"
    return ""


def _import(module: str, source: str) -> None:
    """Import by name, or from the file where the name is not importable (test modules)."""
    if module in sys.modules:
        return
    try:
        import_module(module)
    except ImportError:
        spec = spec_from_file_location(module, source)
        if spec is None or spec.loader is None:
            raise
        sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])

"""Compile many kernels, in child processes: the calling one need not import Numba.

A child imports the module that declares a kernel and stores its object code in the cache.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType
from typing import IO

from ggml_cpu import store
from ggml_cpu.codegen import object_code
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_py.errors import BackendError

Progress = Callable[[int, int, str], None]

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggml_cpu.compile import serve; serve()"
)


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
    there = sorted((k for k in kernels if k not in here), key=_size, reverse=True)
    if there:
        with _Children(there, directory) as children:
            for name in children.finished():
                done += 1
                if progress is not None:
                    progress(done, total, name)


def _size(kernel: Kernel) -> int:
    """Bytes of bytecode a kernel reaches: the large ones start first, none is left for the end."""
    found: set[FunctionType] = set()
    wanted: list[object] = [kernel.function]
    while wanted:
        function = wanted.pop()
        if type(function) is FunctionType and function not in found:  # isinstance wakes `v`
            found.add(function)
            names, known = function.__code__.co_names, function.__globals__
            wanted += [known[name] for name in names if name in known]
            wanted += [cell.cell_contents for cell in function.__closure__ or ()]
    return sum(len(function.__code__.co_code) for function in found)


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

    def finished(self) -> Iterator[str]:
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

"""Compile many kernels, in child processes: the calling one need not import Numba.

A child imports the module that declares a kernel and stores its object code in the cache. Children
live on for a while: what they typed for one kernel serves the next.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from ggml_cpu import store
from ggml_cpu.codegen import object_code
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.shares import Shares
from ggml_py.errors import BackendError

Progress = Callable[[int, int, str], None]

IDLE_SECONDS = 10  # for this long, children wait for more kernels
GARBAGE = 2_000_000  # objects a child makes before it looks for garbage
_CHANGED = "has changed since this program started; start again"

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
    there = [k for k in kernels if k not in here]
    if there:
        with closing(_CHILDREN.compile(there, directory)) as finished:
            for name in finished:
                done += 1
                if progress is not None:
                    progress(done, total, name)


def _source(module: str) -> str:
    """The file from which another process can import the module; "" where it cannot."""
    if module == "__main__" or not sys.executable:
        return ""
    return getattr(sys.modules.get(module), "__file__", None) or ""


class _Child:
    """A process that compiles one kernel after the other."""

    def __init__(self) -> None:
        self.path = list(sys.path)
        self._ended = False
        self._start()

    def _start(self) -> None:
        self._fresh = True
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (_stop)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    @property
    def usable(self) -> bool:
        return self.path == sys.path and self._process.poll() is None

    def compile(self, kernel: Kernel, directory: Path) -> str:
        """Have one kernel compiled: "" or the error message."""
        fresh, self._fresh = self._fresh, False
        failure = self._ask(kernel, directory)
        if failure.endswith(_CHANGED) and not fresh and not self._ended:
            self._stop()  # the module may be newer than what the child imported
            self._start()
            failure = self._ask(kernel, directory)
        return failure

    def _ask(self, kernel: Kernel, directory: Path) -> str:
        job = {
            "module": kernel.module,
            "source": _source(kernel.module),
            "kernel": kernel.name,
            "path": str(directory / store.file_name(kernel)),
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except OSError:
            answer = ""
        if answer:
            return str(json.loads(answer))
        self._messages.seek(0)
        tail = self._messages.read()[-2000:].strip()
        return f"kernel {kernel.name}: the compiling process died. {tail}"

    def interrupt(self) -> None:
        """Whatever it does; who waits for an answer gets one."""
        self._ended = True
        self._process.kill()

    def end(self) -> None:
        self.interrupt()
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        with suppress(OSError), self._process, self._messages:
            pass


class _Children:
    """The child processes. One caller at a time has them; a thread of ours looks after each."""

    def __init__(self) -> None:
        self._children: list[_Child] = []
        self._of_parent: list[_Child] = []
        self._busy = threading.Lock()
        self._idle: threading.Timer | None = None

    def compile(self, kernels: Sequence[Kernel], directory: Path) -> Generator[str]:
        """Names of kernels as they get done. Raises BackendError for one that did not."""
        with self._busy:
            missing = []  # another thread may have had them compiled meanwhile
            for kernel in kernels:
                if store.read(directory / store.file_name(kernel)) is None:
                    missing.append(kernel)
                else:
                    yield kernel.name
            yield from self._compile(missing, directory)

    def start(self) -> None:
        """Before anything is asked of them."""
        with self._busy:
            self._provide(_usable_cpus())
            self._wait()

    def _compile(self, kernels: Sequence[Kernel], directory: Path) -> Generator[str]:
        count = min(_usable_cpus(), len(kernels))
        self._provide(count)
        results: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        shares = Shares(kernels, count)
        feeders = [
            threading.Thread(target=_feed, args=(child, i, shares, directory, results), daemon=True)
            for i, child in enumerate(self._children[:count])
        ]
        for thread in feeders:
            thread.start()
        done = False
        try:
            for _ in kernels:
                name, failure = results.get()
                if failure:
                    raise BackendError(failure)
                yield name
            done = True
        finally:
            if not done:
                shares.clear()
                for child in self._children:
                    child.interrupt()
            for thread in feeders:
                thread.join()
            if not done:
                self._end()
        self._wait()

    def _provide(self, count: int) -> None:
        """At least `count` children that run and import from where we do."""
        if self._idle is not None:
            self._idle.cancel()
        if not all(child.usable for child in self._children):
            self._end()
        while len(self._children) < count:
            self._children.append(_Child())

    def _wait(self) -> None:
        self._idle = threading.Timer(IDLE_SECONDS, self.end)
        self._idle.daemon = True
        self._idle.start()

    def end(self) -> None:
        """End them unless they are at work."""
        if self._busy.acquire(blocking=False):
            self._end()
            self._busy.release()

    def _end(self) -> None:
        children, self._children = self._children, []
        for child in children:
            child.end()

    def after_fork(self) -> None:
        """In a forked process: they are the parent's. Held, since dropping them would end them."""
        self._of_parent = self._children
        self._children, self._busy, self._idle = [], threading.Lock(), None


def _feed(
    child: _Child, number: int, shares: Shares, directory: Path,
    results: queue.SimpleQueue[tuple[str, str]],
) -> None:  # fmt: skip
    while (kernel := shares.take(number)) is not None:
        results.put((kernel.name, child.compile(kernel, directory)))


_CHILDREN = _Children()
atexit.register(_CHILDREN.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHILDREN.after_fork)


def start_compilers() -> None:
    """Where nothing was compiled before, start what will: it imports Numba in the meantime."""
    if not store.directory().is_dir() and sys.executable:
        _CHILDREN.start()


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serve() -> None:
    """The child's side: a job a line on stdin, an error message ("" for none) a line on stdout."""
    answers, sys.stdout = sys.stdout, sys.stderr
    import_module("ggml_cpu.frontend")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked; that ends us if it must
    gc.disable()  # what compiling leaves behind is mostly kept; looking through it takes a fifth
    for line in sys.stdin:
        answers.write(json.dumps(_answer(**json.loads(line))) + "\n")
        answers.flush()
        if gc.get_count()[0] > GARBAGE:
            gc.collect()


def _answer(module: str, source: str, kernel: str, path: str) -> str:
    try:
        _import(module, source)
        declared = REGISTRY.kernels.get(kernel)
        if declared is None or store.file_name(declared) != Path(path).name:
            return f"kernel {kernel}: {module} {_CHANGED}"
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

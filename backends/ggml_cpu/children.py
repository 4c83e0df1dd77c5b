"""Child processes that compile kernels: the parent's side (the child's side is serve.py).

Children keep running for a while, since they reuse the typed helpers of earlier kernels.
"""

from __future__ import annotations

import binascii
import json
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import IO

from ggml_cpu.fingerprints import file_name
from ggml_cpu.kernel import Kernel
from ggml_cpu.shares import KernelShares
from ggml_cpu.store import STORE
from ggml_py.errors import BackendError

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggml_cpu.serve import serve; serve()"
)
CHANGED = "has changed since this program started; restart it"  # suffix of a child's error

Result = tuple[Kernel, str, bytes]  # kernel, error message or "", object code
Results = queue.SimpleQueue[Result]


def source(module: str) -> str:
    """Return the module's file; "" if another process cannot import the module."""
    if module == "__main__" or not sys.executable:
        return ""
    return getattr(sys.modules.get(module), "__file__", None) or ""


class _Child:
    """A child process that compiles one kernel at a time."""

    def __init__(self) -> None:
        self.path = list(sys.path)
        self._ended = False
        self._start()

    def _start(self) -> None:
        import subprocess

        self._fresh = True
        self._messages = _messages()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages or subprocess.DEVNULL,
            text=True,
        )

    @property
    def usable(self) -> bool:
        return self.path == sys.path and self._process.poll() is None

    def compile(self, kernel: Kernel) -> tuple[str, bytes]:
        """Compile one kernel in the child and return an error message, or "" and its code."""
        fresh, self._fresh = self._fresh, False
        failure, code = self._ask(kernel)
        if failure.endswith(CHANGED) and not fresh and not self._ended:
            self._stop()  # the child may have imported an older version of the module
            self._start()
            failure, code = self._ask(kernel)
        return failure, code

    def _ask(self, kernel: Kernel) -> tuple[str, bytes]:
        job = {
            "module": kernel.module,
            "source": source(kernel.module),
            "kernel": kernel.name,
            "file": file_name(kernel),
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except OSError:
            answer = ""
        if answer.endswith("\n"):
            failure, text = json.loads(answer)
            return str(failure), binascii.a2b_base64(text)
        return f"kernel {kernel.name}: the compiling process died. {self._last_words()}", b""

    def _last_words(self) -> str:
        if self._messages is None:
            return ""
        self._messages.seek(0)
        return self._messages.read()[-2000:].strip()

    def kill(self) -> None:
        """Kill the child even if it is compiling; a waiting `compile` returns an error."""
        self._ended = True
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        with suppress(OSError), self._process, self._messages or nullcontext():
            pass


def _messages() -> IO[str] | None:
    """Return a temporary file for a child's stderr, or None if none can be created."""
    import tempfile

    try:
        return tempfile.TemporaryFile("w+", errors="replace")
    except OSError:
        return None


class Children:
    """The child processes, used by one caller at a time. A thread feeds each busy child."""

    def __init__(self) -> None:
        self._children: list[_Child] = []
        self._begin()

    def _begin(self) -> None:
        self._shares = KernelShares()
        self._results: Results = queue.SimpleQueue()
        self._feeders: list[threading.Thread] = []

    def compile(
        self, kernels: Sequence[Kernel], following: Callable[[], Iterable[Kernel]] = tuple
    ) -> Generator[tuple[Kernel, bytes]]:
        """Yield each kernel and its object code when compiled; the code is also stored.

        Idle children compile the kernels of `following()` in advance. They continue after this call
        returns; the next call uses their results.

        Raises:
            BackendError: A kernel does not compile.
        """
        missing, finished = set(kernels), list[Result]()
        running = self._shares.clear()  # their results follow; earlier results are in the queue
        while not self._results.empty():
            finished.append(self._results.get())
        known = running | {kernel for kernel, _, _ in finished}
        self._shares.ask(kernel for kernel in kernels if kernel not in known)
        self._feed()
        try:
            self._shares.follow(following())
            self._feed()
            while missing:
                kernel, failure, code = finished.pop() if finished else self._results.get()
                if kernel not in missing:
                    continue
                if failure:
                    raise BackendError(failure)
                missing.discard(kernel)
                yield kernel, code
        finally:
            if missing:
                self.end()

    def _feed(self) -> None:
        """Start a feeder thread for each idle child while kernels are waiting."""
        self._feeders = [thread for thread in self._feeders if thread.is_alive()]
        for i, child in enumerate(self._children):
            if self._shares.begin(i):
                of = child, i, self._shares, self._results
                self._feeders.append(threading.Thread(target=_feed, args=of, daemon=True))
                self._feeders[-1].start()

    def at_work(self) -> bool:
        return self._shares.at_work()

    def provide(self, count: int) -> None:
        """Start children until `count` run; restart all if one ended or `sys.path` has changed."""
        if not all(child.usable for child in self._children):
            self.end()
        while len(self._children) < count:
            self._children.append(_Child())

    def end(self) -> None:
        """Kill all children, busy or idle, and drop all waiting kernels."""
        self._shares.clear()
        children, self._children = self._children, []
        for child in children:
            child.kill()
        for thread in self._feeders:
            thread.join()
        for child in children:
            child.end()
        self._begin()


def _feed(child: _Child, number: int, shares: KernelShares, results: Results) -> None:
    while (kernel := shares.take(number)) is not None:
        failure, code = child.compile(kernel)
        if not failure:
            STORE.write(kernel, code)
        results.put((kernel, failure, code))

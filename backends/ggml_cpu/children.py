"""Child processes that compile kernels, for the process that asks them (serve.py is their side).

They live on for a while: what they typed for one kernel serves the next.
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
CHANGED = "has changed since this program started; restart it"  # ends an error of a child

Result = tuple[Kernel, str, bytes]  # why there is no code, or the code
Results = queue.SimpleQueue[Result]


def source(module: str) -> str:
    """Return the file from which another process can import the module; "" where it cannot."""
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
            self._stop()  # the module may be newer than what the child imported
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
        """Kill the child, whatever it does; a caller that waits for an answer gets one."""
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
    """Return a file for a child's stderr; None where no disk has room."""
    import tempfile

    try:
        return tempfile.TemporaryFile("w+", errors="replace")
    except OSError:
        return None


class Children:
    """Lends the child processes to one caller at a time; a thread watches each that works."""

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
        """Yield kernels as they get done, kept for the next time. Raises BackendError for one that
        did not.

        following  what children compile that have no other work; they go on with it when all these
            are done, until others are asked for, of which it may have been one
        """
        missing, finished = set(kernels), list[Result]()
        running = self._shares.clear()  # each will have its result; of others done it is there
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
        """Start children that do no work."""
        self._feeders = [thread for thread in self._feeders if thread.is_alive()]
        for i, child in enumerate(self._children):
            if self._shares.begin(i):
                of = child, i, self._shares, self._results
                self._feeders.append(threading.Thread(target=_feed, args=of, daemon=True))
                self._feeders[-1].start()

    def at_work(self) -> bool:
        return self._shares.at_work()

    def provide(self, count: int) -> None:
        """Start children until `count` run and import from the same paths as this process."""
        if not all(child.usable for child in self._children):
            self.end()
        while len(self._children) < count:
            self._children.append(_Child())

    def end(self) -> None:
        """Kill all children, whatever they do."""
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

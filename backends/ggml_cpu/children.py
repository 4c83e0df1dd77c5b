"""Child processes that compile, and who asks them (serve.py is their side).

They live on for a while: what they typed for one kernel serves the next.
"""

from __future__ import annotations

import binascii
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import nullcontext, suppress
from typing import IO

from ggml_cpu.fingerprints import file_name
from ggml_cpu.kernel import Kernel
from ggml_cpu.shares import Shares
from ggml_cpu.store import STORE
from ggml_py.errors import BackendError

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggml_cpu.serve import serve; serve()"
)
_CHANGED = "start again"  # ends what a child says of a module that is not as it knows it

Results = queue.SimpleQueue[tuple[Kernel, str, bytes]]


def source(module: str) -> str:
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
        """Have one kernel compiled: an error message, or "" and its code."""
        fresh, self._fresh = self._fresh, False
        failure, code = self._ask(kernel)
        if failure.endswith(_CHANGED) and not fresh and not self._ended:
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

    def interrupt(self) -> None:
        """Whatever it does; who waits for an answer gets one."""
        self._ended = True
        self._process.kill()

    def end(self) -> None:
        self.interrupt()
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        with suppress(OSError), self._process, self._messages or nullcontext():
            pass


def _messages() -> IO[str] | None:
    """A file for what a child says on stderr; None where no disk has room."""
    try:
        return tempfile.TemporaryFile("w+", errors="replace")
    except OSError:
        return None


class Children:
    """The child processes, for one caller at a time; a thread of ours looks after each."""

    def __init__(self) -> None:
        self._children: list[_Child] = []

    def compile(self, kernels: Sequence[Kernel]) -> Generator[tuple[Kernel, bytes]]:
        """Kernels as they get done, kept for the next time. Raises BackendError for one that did
        not."""
        children = self._children[: len(kernels)]
        results: Results = queue.SimpleQueue()
        shares = Shares(kernels, len(children))
        feeders = [
            threading.Thread(target=_feed, args=(child, i, shares, results), daemon=True)
            for i, child in enumerate(children)
        ]
        for thread in feeders:
            thread.start()
        done = False
        try:
            for _ in kernels:
                kernel, failure, code = results.get()
                if failure:
                    raise BackendError(failure)
                yield kernel, code
            done = True
        finally:
            if not done:
                shares.clear()
                for child in self._children:
                    child.interrupt()
            for thread in feeders:
                thread.join()
            if not done:
                self.end()

    def provide(self, count: int) -> None:
        """At least `count` children that run and import from where we do."""
        if not all(child.usable for child in self._children):
            self.end()
        while len(self._children) < count:
            self._children.append(_Child())

    def end(self) -> None:
        children, self._children = self._children, []
        for child in children:
            child.end()


def _feed(child: _Child, number: int, shares: Shares, results: Results) -> None:
    while (kernel := shares.take(number)) is not None:
        failure, code = child.compile(kernel)
        if not failure:
            STORE.write(kernel, code)
        results.put((kernel, failure, code))

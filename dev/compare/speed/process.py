"""The parent's end of a worker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dev.compare.speed.peer import Peer

ROOT = Path(__file__).parents[3]
# The worker imports no code that compares or draws, so its memory is the engine's.
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from dev.compare.speed.worker import serve; serve(sys.argv[2])"
)


class WorkerError(Exception):
    """An engine does not complete a request."""


class WorkerDied(WorkerError):
    """The process of the engine ended."""


@dataclass
class Worker:
    """A process that serves a peer, from `with` on."""

    peer: Peer
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] = field(init=False)

    @property
    def name(self) -> str:
        return self.peer.name

    def __enter__(self) -> Worker:
        self.process = subprocess.Popen(
            worker_command(self.peer.python, self.peer.file),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # the process has already ended
            pipe(self.process.stdin).close()
        self.process.wait()
        pipe(self.process.stdout).close()

    def ask(self, do: str, **how: Any) -> Any:
        """Return the worker's answer; raise WorkerError if it fails."""
        stdin = pipe(self.process.stdin)
        with suppress(BrokenPipeError):  # reported below
            stdin.write(json.dumps({"do": do, **how}) + "\n")
            stdin.flush()
        line = pipe(self.process.stdout).readline()
        if not line:
            status = self.process.wait()
            raise WorkerDied(f"{self.name}: the worker died, exit status {status}")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{self.name}: {reply['error']}")
        return reply["answer"]

    def load(self, model: str, threads: int) -> None:
        self.ask("load", model=model, threads=threads, **self.peer.how)


def worker_command(python: str | Sequence[str], file: str) -> list[str]:
    """Return the command of a worker; `file` is the name of a module in `peers`."""
    command = [python] if isinstance(python, str) else python
    return [*command, "-c", START, str(ROOT), file]


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream

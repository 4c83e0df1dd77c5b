"""Process of an engine: one request per line on stdin, one answer per line on the original stdout.

It runs in the peer's Python, without our package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

MEASURES: dict[str, Callable[..., float]] = {
    "pp": lambda e, n: e.pp(n),
    "warm": lambda e, n: e.pp(n),
    "new": lambda e, n: e.new(n),
    "tg": lambda e, n: e.tg(n),
    "batch": lambda e, n: e.batch(n),
    "at once": lambda e, n: e.at_once(n),
}


def serve(file: str) -> None:
    """Answer requests until stdin ends; `file` is the name of a module in `peers`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output of a library out of the answers
    served = Served(file)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"answer": served.answer(request.pop("do"), **request)}
        except Exception as e:  # sent to the parent
            reply = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


class Served:
    """Requests that a worker can answer."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.engine: Any = None

    def answer(self, do: str, **how: Any) -> Any:
        """Return for load, context: None; check: a token; cache, peak: bytes; else seconds."""
        if do == "load":
            self.engine = import_module(f"dev.compare.speed.peers.{self.file}").Loaded(**how)
            return None
        asked: dict[str, Callable[[], Any]] = {
            "context": lambda: self.engine.context(**how),
            "check": self.engine.first_token,
            "cache": self.engine.cache_bytes,
            "peak": peak,
        }
        return asked[do]() if do in asked else MEASURES[do](self.engine, **how)


def peak() -> int:
    """Return the peak resident bytes of this process, including mapped files."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024

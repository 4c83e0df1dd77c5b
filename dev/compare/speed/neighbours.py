"""Processes that compute all the time, to simulate background load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUSY = """
from os import getppid
parent = getppid()
while getppid() == parent:  # not beyond who started it
    sum(range(100_000))
"""


@contextmanager
def neighbours(n: int) -> Iterator[None]:
    """Run n busy processes, each with a thread of normal priority, until the end."""
    running = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(n)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()

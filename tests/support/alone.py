"""Tests that fork: in an interpreter without other tests' threads.

A lock that a thread holds at that moment stays locked in the forked process, which waits for ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from tests.support.commands import ROOT
from tests.support.limits import SECONDS

CALL = "import runpy, sys; runpy.run_path(sys.argv[1])[sys.argv[2]](*sys.argv[3:])"


def run_alone(function: Callable[..., object], *args: str) -> str:
    """Call a function of a test's file in a fresh interpreter; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", CALL, function.__code__.co_filename, function.__name__, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def holds_in_fork(check: Callable[[], object]) -> bool:
    """Return True if a check holds in a forked process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""Processes that others have started: compilers of kernels, and whether all end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from tests.support.limits import SECONDS


def compilers(pid: int) -> list[psutil.Process]:
    """Return the child processes of a running process that compile kernels; wait for the first.

    A child that has not replaced its program yet, or that does something else, is not one.
    """
    until = time.monotonic() + SECONDS
    while runs(parent := psutil.Process(pid)) and time.monotonic() < until:
        if found := [child for child in parent.children(recursive=True) if _compiles(child)]:
            return found
        time.sleep(0.01)
    raise AssertionError("no process has compiled anything")


def _compiles(process: psutil.Process) -> bool:
    try:
        return any("ggml_cpu.serve" in word for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False


def all_end(processes: Sequence[psutil.Process]) -> bool:
    """Return True once all have ended; it may be that no process reaps them."""
    until = time.monotonic() + SECONDS
    while any(map(runs, processes)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(runs, processes))


def runs(process: psutil.Process) -> bool:
    """Return True while a process has not ended; another one may have its number by then."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False

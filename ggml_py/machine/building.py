"""Kernels that are being built: who wants to see it is told, and it is nobody else's time.

with telling(display):          # display(Stage(...)) from now on
    ...
before = seconds()
ctx.decode(tokens)
building = seconds() - before   # of this thread
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple


class BuildStage(NamedTuple):
    """How far it is.

    total     0 where more will follow that is not known yet
    what      the kernel that was built last
    stopped   building ended before all were built
    """

    done: int
    total: int
    what: str = ""
    stopped: bool = False


Display = Callable[[BuildStage], None]


class _Clock(threading.local):
    seconds = 0.0
    running = False


_CLOCK = _Clock()
_DISPLAYS: list[Display] = []


@contextmanager
def building() -> Iterator[None]:
    """Count time in the block as building, in this thread; displays see if it fails."""
    if _CLOCK.running:
        yield
        return
    _CLOCK.running, start = True, perf_counter()
    try:
        yield
    except BaseException:
        tell(BuildStage(0, 0, stopped=True))
        raise
    finally:
        _CLOCK.running = False
        _CLOCK.seconds += perf_counter() - start


def seconds() -> float:
    """That this thread has waited for kernels so far."""
    return _CLOCK.seconds


@contextmanager
def telling(display: Display) -> Iterator[None]:
    """Meanwhile it is told of all that is built, in place of who was told before."""
    _DISPLAYS.append(display)
    try:
        yield
    finally:
        _DISPLAYS.remove(display)


def is_told() -> bool:
    """Whether somebody is."""
    return bool(_DISPLAYS)


def tell(stage: BuildStage) -> None:
    """The last who asked for it."""
    if _DISPLAYS:
        _DISPLAYS[-1](stage)


def clock() -> float:
    """Seconds of this thread's work: it stands still while kernels are built."""
    return perf_counter() - _CLOCK.seconds

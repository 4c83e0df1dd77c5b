"""Progress of kernel compilation, and the time that a thread waits for kernels.

with send_progress(display):          # display(BuildStage(...)) at each step
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
    """Progress of a kernel build.

    total     0 if an unknown number will follow
    name      name of the last kernel
    stopped   building ended before all were built
    """

    done: int
    total: int
    name: str = ""
    stopped: bool = False


Display = Callable[[BuildStage], None]


class _Clock(threading.local):
    seconds = 0.0
    running = False


_CLOCK = _Clock()
_DISPLAYS: list[Display] = []


@contextmanager
def building() -> Iterator[None]:
    """Count this thread's time in the block as building; report failures to the display."""
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
    """Return the seconds that this thread has waited for kernels."""
    return _CLOCK.seconds


@contextmanager
def send_progress(display: Display) -> Iterator[None]:
    """Send all build progress to this display within `with`, instead of an earlier display."""
    _DISPLAYS.append(display)
    try:
        yield
    finally:
        _DISPLAYS.remove(display)


def is_told() -> bool:
    """Return True if there is a display."""
    return bool(_DISPLAYS)


def tell(stage: BuildStage) -> None:
    """Send progress to the latest display."""
    if _DISPLAYS:
        _DISPLAYS[-1](stage)


def clock() -> float:
    """Return the seconds of this thread's work; the clock stops while kernels are built."""
    return perf_counter() - _CLOCK.seconds

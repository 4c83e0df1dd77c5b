"""Shares of several workers that compile: kernels that share helpers go to the same worker.

Helpers that a factory has made twice of the same parts are one: what is typed for the first serves
the second.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from types import FunctionType

from ggml_cpu.kernel import Kernel

Reached = dict[Hashable, int]  # sizes of functions, by their content


class KernelShares:
    """Kernels that wait for workers, which are numbers.

    A worker gets the largest kernel, not counting what another worker has seen and it has not: the
    large ones start first, so that none is left for the end. What nobody asked for yet comes last.
    """

    def __init__(self) -> None:
        self._asked: dict[Kernel, Reached] = {}
        self._next: dict[Kernel, Reached] = {}
        self._seen: dict[int, Reached] = {}
        self._working: dict[int, Kernel | None] = {}
        self._lock = threading.Lock()

    def ask(self, kernels: Iterable[Kernel]) -> None:
        """Add kernels that a caller waits for."""
        with self._lock:
            self._asked |= {kernel: find_reached(kernel) for kernel in kernels}

    def follow(self, kernels: Iterable[Kernel]) -> None:
        """Add kernels that are likely to be asked for next."""
        with self._lock:
            running = self._working.values()
            new = (k for k in kernels if k not in self._asked and k not in running)
            self._next |= {kernel: find_reached(kernel) for kernel in new}

    def begin(self, worker: int) -> bool:
        """Return True if this worker is to start: there is work, and it does none."""
        with self._lock:
            idle = worker not in self._working
            if idle and len(self._asked) + len(self._next) > self._starting():
                self._working[worker] = None
                return True
            return False

    def _starting(self) -> int:
        return sum(kernel is None for kernel in self._working.values())

    def take(self, worker: int) -> Kernel | None:
        """Return the next kernel for a worker that finished the one before; None: it ends."""
        with self._lock:
            waiting = self._asked or self._next
            if not waiting:
                self._working.pop(worker, None)
                return None
            chosen = max(waiting, key=lambda kernel: self._worth(worker, waiting[kernel]))
            self._seen[worker] = self._seen.get(worker, {}) | waiting.pop(chosen)
            self._working[worker] = chosen
            return chosen

    def clear(self) -> set[Kernel]:
        """Drop all kernels that wait, and return those that are being compiled."""
        with self._lock:
            self._asked.clear()
            self._next.clear()
            return {kernel for kernel in self._working.values() if kernel is not None}

    def at_work(self) -> bool:
        """Return True if a worker has not ended."""
        with self._lock:
            return bool(self._working)

    def _worth(self, worker: int, functions: Reached) -> int:
        seen = {w: sum(n for f, n in functions.items() if f in s) for w, s in self._seen.items()}
        return sum(functions.values()) + seen.get(worker, 0) - max(seen.values(), default=0)


def find_reached(kernel: Kernel) -> Reached:
    """Return bytes of bytecode of the kernel's function, and of all that it calls."""
    found: Reached = {}
    seen: set[int] = set()
    wanted: list[object] = [kernel.function]
    while wanted:
        function = wanted.pop()
        if type(function) is FunctionType and id(function) not in seen:  # isinstance wakes `v`
            seen.add(id(function))
            found[content(function)] = len(function.__code__.co_code)
            names, known = function.__code__.co_names, function.__globals__
            wanted += [known[name] for name in names if name in known]
            wanted += [cell.cell_contents for cell in function.__closure__ or ()]
    return found


def content(function: object) -> Hashable:
    """Return equal values for functions of the same lines on the same parts, which do the same."""
    if type(function) is not FunctionType:
        return id(function)
    if function not in _CONTENTS:
        _CONTENTS[function] = id(function), None  # to itself, it is not the same as others
        cells = (cell.cell_contents for cell in function.__closure__ or ())
        parts = tuple(map(_part, (*cells, *(function.__defaults__ or ()))))
        found = function.__module__, function.__code__, parts
        _CONTENTS[function] = _NUMBERS.setdefault(found, len(_NUMBERS)), True
    return _CONTENTS[function]


def _part(x: object) -> Hashable:
    if type(x) in (bool, int, float, str, bytes, type(None)):
        return type(x), repr(x)  # 1 == True, and 0.0 == -0.0
    return tuple(map(_part, x)) if type(x) is tuple else content(x)


_CONTENTS: dict[FunctionType, tuple[int, bool | None]] = {}
_NUMBERS: dict[Hashable, int] = {}

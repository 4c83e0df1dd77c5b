"""Distributes kernels to compiling workers: kernels with common helpers go to the same worker.

Helpers that a factory created twice from equal parts count as one: the second reuses the types
inferred for the first.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from types import FunctionType

from ggml_cpu.kernel import Kernel

Reached = dict[Hashable, int]  # bytes of bytecode, by function content


class KernelShares:
    """Kernels that wait for workers; a worker is a number.

    A worker gets the kernel with the largest bytecode, minus the helpers that another worker has
    typed and this one has not. Large kernels start first, so that the last kernels are short.
    Kernels requested in advance (`follow`) start after all others.
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
        """Add kernels that will probably be requested next."""
        with self._lock:
            running = self._working.values()
            new = (k for k in kernels if k not in self._asked and k not in running)
            self._next |= {kernel: find_reached(kernel) for kernel in new}

    def begin(self, worker: int) -> bool:
        """Return True if an idle worker must start because kernels are waiting, and register it."""
        with self._lock:
            idle = worker not in self._working
            if idle and len(self._asked) + len(self._next) > self._starting():
                self._working[worker] = None
                return True
            return False

    def _starting(self) -> int:
        return sum(kernel is None for kernel in self._working.values())

    def take(self, worker: int) -> Kernel | None:
        """Return the next kernel for a worker; None if it must end."""
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
        """Drop all waiting kernels and return the kernels being compiled."""
        with self._lock:
            self._asked.clear()
            self._next.clear()
            return {kernel for kernel in self._working.values() if kernel is not None}

    def at_work(self) -> bool:
        """Return True if any worker is running."""
        with self._lock:
            return bool(self._working)

    def _worth(self, worker: int, functions: Reached) -> int:
        seen = {w: sum(n for f, n in functions.items() if f in s) for w, s in self._seen.items()}
        return sum(functions.values()) + seen.get(worker, 0) - max(seen.values(), default=0)


def find_reached(kernel: Kernel) -> Reached:
    """Return the bytecode size of the kernel's function and of each function that it reaches."""
    found: Reached = {}
    seen: set[int] = set()
    wanted: list[object] = [kernel.function]
    while wanted:
        function = wanted.pop()
        if type(function) is FunctionType and id(function) not in seen:  # isinstance loads `v`
            seen.add(id(function))
            found[content(function)] = len(function.__code__.co_code)
            names, known = function.__code__.co_names, function.__globals__
            wanted += [known[name] for name in names if name in known]
            wanted += [cell.cell_contents for cell in function.__closure__ or ()]
    return found


def content(function: object) -> Hashable:
    """Return a key that is equal for functions with the same code, closure and defaults."""
    if type(function) is not FunctionType:
        return id(function)
    if function not in _CONTENTS:
        _CONTENTS[function] = id(function), None  # for recursive functions: a unique key
        cells = (cell.cell_contents for cell in function.__closure__ or ())
        parts = tuple(map(_part, (*cells, *(function.__defaults__ or ()))))
        found = function.__module__, function.__code__, parts
        _CONTENTS[function] = _NUMBERS.setdefault(found, len(_NUMBERS)), True
    return _CONTENTS[function]


def _part(x: object) -> Hashable:
    if type(x) in (bool, int, float, str, bytes, type(None)):
        return type(x), repr(x)  # distinguishes 1 from True, 0.0 from -0.0
    return tuple(map(_part, x)) if type(x) is tuple else content(x)


_CONTENTS: dict[FunctionType, tuple[int, bool | None]] = {}
_NUMBERS: dict[Hashable, int] = {}

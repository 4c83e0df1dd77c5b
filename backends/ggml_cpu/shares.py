"""Which of several workers compiles which kernel: those that share helpers go to the same one.

Helpers that a factory has made twice of the same parts are one: what is typed for the first serves
the second.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from types import FunctionType

from ggml_cpu.kernel import Kernel

Reached = dict[Hashable, int]  # sizes of functions, by their content


class Shares:
    """Kernels that wait for workers 0 .. n-1.

    A worker gets the largest kernel, not counting what another worker has seen and it has not: the
    large ones start first, so that none is left for the end.
    """

    def __init__(self, kernels: Sequence[Kernel], n: int) -> None:
        self._waiting = {kernel: reached(kernel) for kernel in kernels}
        self._seen: list[Reached] = [{} for _ in range(n)]
        self._lock = threading.Lock()

    def take(self, worker: int) -> Kernel | None:
        """The next kernel for a worker; None where there are no more."""
        with self._lock:
            if not self._waiting:
                return None
            chosen = max(self._waiting, key=partial(self._worth, worker))
            self._seen[worker] |= self._waiting.pop(chosen)
            return chosen

    def clear(self) -> None:
        """Nobody gets one any more."""
        with self._lock:
            self._waiting.clear()

    def _worth(self, worker: int, kernel: Kernel) -> int:
        functions = self._waiting[kernel]
        seen = [sum(n for f, n in functions.items() if f in known) for known in self._seen]
        return sum(functions.values()) + seen[worker] - max(seen)


def reached(kernel: Kernel) -> Reached:
    """The kernel's function, and those it calls, directly or not: bytes of bytecode of each."""
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
    """Equal for functions that are the same lines on the same parts, and so do the same."""
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

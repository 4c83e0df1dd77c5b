"""Which of several workers compiles which kernel: those that share helpers go to the same one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import FunctionType

from ggml_cpu.kernel import Kernel


class Shares:
    """Kernels that wait for workers 0 .. n-1.

    A worker gets the largest kernel of which it has seen at least as much as the others have; the
    large ones start first, so that none is left for the end.
    """

    def __init__(self, kernels: Sequence[Kernel], n: int) -> None:
        self._waiting = {kernel: reached(kernel) for kernel in kernels}
        self._seen: list[set[FunctionType]] = [set() for _ in range(n)]
        self._lock = threading.Lock()

    def take(self, worker: int) -> Kernel | None:
        """The next kernel for a worker; None where there are no more."""
        with self._lock:
            if not self._waiting:
                return None
            chosen = max(self._waiting, key=lambda k: (self._suits(k, worker), self._size(k)))
            self._seen[worker] |= self._waiting.pop(chosen)
            return chosen

    def clear(self) -> None:
        """Nobody gets one any more."""
        with self._lock:
            self._waiting.clear()

    def _suits(self, kernel: Kernel, worker: int) -> bool:
        functions = self._waiting[kernel]
        seen = [size(functions & known) for known in self._seen]
        return seen[worker] >= max(seen)

    def _size(self, kernel: Kernel) -> int:
        return size(self._waiting[kernel])


def reached(kernel: Kernel) -> set[FunctionType]:
    """The kernel's function, and those it calls, directly or not."""
    found: set[FunctionType] = set()
    wanted: list[object] = [kernel.function]
    while wanted:
        function = wanted.pop()
        if type(function) is FunctionType and function not in found:  # isinstance wakes `v`
            found.add(function)
            names, known = function.__code__.co_names, function.__globals__
            wanted += [known[name] for name in names if name in known]
            wanted += [cell.cell_contents for cell in function.__closure__ or ()]
    return found


def size(functions: Iterable[FunctionType]) -> int:
    """Bytes of bytecode."""
    return sum(len(function.__code__.co_code) for function in functions)

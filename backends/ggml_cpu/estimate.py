"""How long kernels will still take to compile: a guess from their size, then from those done."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from ggml_cpu.kernel import Kernel
from ggml_cpu.shares import reached

PER_BYTE = 1.2e-4  # seconds of a CPU by bytes of bytecode, helpers included (Zen 4)
TRUSTED = 10_000  # bytes after which the guess counts as much as what was seen
START = 0.6  # seconds until Numba is imported


class Estimate:
    """Of several kernels, compiled by so many processes from now on."""

    def __init__(self, kernels: Sequence[Kernel], n: int) -> None:
        self._sizes = {k: sum(reached(k).values()) for k in kernels}
        self._n = n
        self._start = monotonic() + START
        self._done = 0

    def done(self, kernel: Kernel) -> None:
        self._done += self._sizes.pop(kernel)

    @property
    def left(self) -> float:
        """Seconds."""
        spent = max(0.0, monotonic() - self._start) * self._n
        rate = (PER_BYTE * TRUSTED + spent) / (TRUSTED + self._done) if self._done else PER_BYTE
        begins = max(0.0, self._start - monotonic())
        return begins + sum(self._sizes.values()) * rate / self._n

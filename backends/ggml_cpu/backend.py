"""The CPU device: host memory, Numba kernels, a native executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ggml_cpu.compile import start_compilers
from ggml_cpu.dense import steps_for, why_not
from ggml_cpu.executor import Executor
from ggml_cpu.fused import fusions
from ggml_cpu.objcache import lacks
from ggml_cpu.program import Program, kernels_of, load
from ggml_cpu.step import Step
from ggml_py import host
from ggml_py.backend import (
    Buffer,
    Bytes,
    CompileOptions,
    HostBuffer,
    KernelTime,
    Work,
    aligned_bytes,
)
from ggml_py.fusion import Fused, Fusions
from ggml_py.tensor import Tensor


class CPUDevice:
    """All cores of this machine; or as many of the threads as one of several has that share it."""

    kind = "cpu"
    alignment = 64

    def __init__(self, name: str = "cpu", number: int = 0, n: int = 1) -> None:
        """That number of n."""
        self.name = name
        self._share = number, n
        self._executor: Executor | None = None
        self.set_threads(host.default_threads())
        self.repack = True

    def again(self, name: str, number: int = 0, n: int = 1) -> CPUDevice:
        """A device on the same memory, with its share of the threads: they run at the same time."""
        device = CPUDevice(name, number, n)
        device.repack = self.repack
        return device

    @property
    def description(self) -> str:
        from ggml_cpu import target

        threads = f"{self.n_threads} {'thread' if self.n_threads == 1 else 'threads'}"
        return f"{target.description()}, {host.description()}, {threads}"

    @property
    def executor(self) -> Executor:
        if self._executor is None or self._executor.n_threads != self.n_threads:
            self._executor = Executor(self.n_threads)
        return self._executor

    def memory(self) -> tuple[int, int]:
        return host.memory()

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size, self.alignment))

    def wrap(self, data: Bytes) -> Buffer | None:
        return HostBuffer(data)

    def why_not(self, node: Tensor) -> str:
        return why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return buffer.is_host

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        from ggml_cpu.repack import repack

        if self.repack:
            repack(weight, uses, self.executor)

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        from ggml_cpu.repack import load_for

        if self.repack:
            load_for(weights)

    @property
    def fusions(self) -> Fusions[Step]:
        return fusions()

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> Program:
        return Program(_all_steps(nodes), self.executor, options)

    def begin(self) -> None:
        start_compilers()

    def lacks(self, nodes: Sequence[Work]) -> bool:
        return lacks(kernels_of(_all_steps(nodes)))

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        load(_all_steps(nodes), options)

    @contextmanager
    def profiling(self) -> Iterator[list[KernelTime]]:
        """What is run meanwhile adds its times to the list; that costs a look at the clock a step.
        The number of threads is to stay."""
        executor, times = self.executor, list[KernelTime]()
        before, executor.times = executor.times, []
        try:
            yield times
        finally:
            times.extend(t for run in executor.times for t in run.times())
            executor.times = before

    def set_threads(self, n: int) -> None:
        """n: of all that share the cores."""
        number, of = self._share
        self.n_threads = max(1, n // of + (number < n % of))


def _all_steps(nodes: Sequence[Work]) -> list[Step]:
    return [step for work in nodes for step in _steps(work)]


def _steps(work: Work) -> list[Step]:
    if isinstance(work, Fused):
        return work.launch()
    return [] if work.is_empty() else steps_for(work)


def devices() -> list[CPUDevice]:
    """Entry point."""
    return [CPUDevice()]

"""The CPU device: host memory, Numba kernels, a native executor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ggml_cpu.dense import build_steps, why_not
from ggml_cpu.executor import Executor
from ggml_cpu.fused import fusions
from ggml_cpu.kernel import Kernel
from ggml_cpu.objcache import has_noted, lacks, start_compilers
from ggml_cpu.program import CPUProgram, list_kernels, load
from ggml_cpu.recorded import RecordedTimes
from ggml_cpu.step import Step
from ggml_cpu.store import STORE
from ggml_py.backend import (
    Buffer,
    Bytes,
    CompileOptions,
    CPUs,
    ExpertStats,
    ExpertWeights,
    FileWeight,
    HostBuffer,
    KernelTime,
    MaskLogits,
    QuantizeRows,
    Work,
    aligned_bytes,
)
from ggml_py.backend.host_memory import SharedPages
from ggml_py.fusion import FusedNodes, Fusions
from ggml_py.machine import host
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType


class CPUDevice:
    """The CPU device: all threads, or one device's part if several devices share the cores."""

    kind = "cpu"
    alignment = 64

    def __init__(self, name: str = "cpu", number: int = 0, n: int = 1) -> None:
        """Create device `number` of n that share the machine's cores."""
        self.name = name
        self._share = number, n
        self._executors: dict[bool, Executor] = {}
        self._cpus: dict[bool, CPUs] = {False: (), True: ()}
        self.n_threads_batch: int | None = None
        self.set_threads(host.default_threads())
        self.repack = True
        self._panels = SharedPages()

    def reopen(self, name: str, number: int = 0, n: int = 1) -> CPUDevice:
        """Return a device on the same memory with part `number` of `n` of the threads."""
        device = CPUDevice(name, number, n)
        device.repack = self.repack
        return device

    @property
    def target(self) -> str:
        from ggml_cpu import target

        return target.description()

    @property
    def description(self) -> str:
        threads = f"{self.n_threads} {'thread' if self.n_threads == 1 else 'threads'}"
        return f"{self.target}, {host.description()}, {threads}"

    @property
    def executor(self) -> Executor:
        """Return the executor for graphs of one token and for work without a graph."""
        return self._executor(False)

    def _executor(self, many: bool) -> Executor:
        n, cpus = self.n_threads, self._cpus[many]
        if many and self.n_threads_batch is not None:
            n = self.n_threads_batch
        if n == self.n_threads and cpus == self._cpus[False]:
            many = False  # same settings: share one executor
        found = self._executors.get(many)
        if found is None or (found.n_threads, found.cpus) != (n, cpus):
            found = self._executors[many] = Executor(n, cpus)
        return found

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
            repack(weight, uses, self.executor, self._panels)

    def repacked_layout(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        from ggml_cpu.repack import repacked_layout

        return repacked_layout(weight, uses) if self.repack else None

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        from ggml_cpu.repack import load_repack_kernels, repacked_sizes

        if self.repack:
            self._panels.expect(repacked_sizes(weights))
            load_repack_kernels(weights)

    def can_cache(self, layers: Sequence[ExpertWeights], budget: int) -> int:
        from ggml_cpu.experts.cache import slot_counts

        counts = slot_counts(layers, budget) if hasattr(os, "preadv") else None
        return sum(size * n for size, n in counts.items()) if counts else 0

    def cache_experts(self, layers: Sequence[ExpertWeights], budget: int) -> ExpertStats:
        from ggml_cpu.experts.cache import ExpertCache

        return ExpertCache(layers, budget).stats

    def measure_reads(self, weights: Sequence[FileWeight]) -> float:
        from ggml_cpu.experts.disk import measure_reads

        return measure_reads(weights)

    def logits_mask(self) -> MaskLogits:
        from ggml_cpu.logits import LogitsMask

        return LogitsMask()

    def row_quantizer(self, type: GGMLType, weighted: bool) -> QuantizeRows:
        from ggml_cpu.quantize.run import quantizer

        return quantizer(type, weighted)

    @property
    def fusions(self) -> Fusions[Step]:
        return fusions()

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> CPUProgram:
        return CPUProgram(_all_steps(nodes), self._executor(options.many), options)

    def begin(self, types: Iterable[str]) -> None:
        def list_repack_kernels() -> list[Kernel]:
            from ggml_cpu.repack import repack_kernels  # only if the cache is not empty

            return repack_kernels(types)

        start_compilers(list_repack_kernels)

    def lacks(self, nodes: Sequence[Work]) -> bool:
        return lacks(list_kernels(_all_steps(nodes)))

    def has_noted(self, key: str) -> bool:
        return has_noted(key)

    def note(self, key: str, nodes: Sequence[Work]) -> None:
        STORE.note(key, list_kernels(_all_steps(nodes)))

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        load(_all_steps(nodes), options)

    @contextmanager
    def profiling(self) -> Iterator[list[KernelTime]]:
        """Collect the times of the steps that run in the `with` block, in the yielded list.

        Each thread reads the clock twice per step. Do not change the number of threads.
        """
        executors, runs = {*map(self._executor, (False, True))}, list[RecordedTimes]()
        times = list[KernelTime]()
        before = {executor: executor.times for executor in executors}
        try:
            for executor in executors:
                executor.times = runs
            yield times
        finally:
            times.extend(t for run in runs for t in run.times())
            for executor, theirs in before.items():
                executor.times = theirs

    def set_threads(self, n: int) -> None:
        """Set the number of threads; `n` is the total of all devices that share the cores."""
        self.n_threads = self._part(n)

    def set_batch_threads(self, n: int | None) -> None:
        """Set the threads for graphs of several tokens; None: the number of `set_threads`."""
        self.n_threads_batch = None if n is None else self._part(n)

    def pin(self, cpus: CPUs, batch_cpus: CPUs | None = None) -> None:
        """Pin threads to CPUs; see ggml_py.backend.SupportsBatchThreads."""
        self._cpus = {False: cpus, True: cpus if batch_cpus is None else batch_cpus}

    def _part(self, n: int) -> int:
        number, of = self._share
        return max(1, n // of + (number < n % of))


def _all_steps(nodes: Sequence[Work]) -> list[Step]:
    return [step for work in nodes for step in _steps(work)]


def _steps(work: Work) -> list[Step]:
    if isinstance(work, FusedNodes):
        return work.launch()
    return [] if work.is_empty() else build_steps(work)


def devices() -> list[CPUDevice]:
    """Return the CPU device; entry point of the backend."""
    return [CPUDevice()]

"""Steps frozen into a native program: (kernel address, parameter block address) of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

from ggml_cpu.executor import Executor
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import WORDS, new_blocks, pack, set_scratch
from ggml_cpu.step import Step, address, view
from ggml_py.backend import Bytes, CompileOptions, KernelTime, aligned_bytes
from ggml_py.tensor import Tensor

SLICE_SECONDS = 0.02  # Python gets control (Ctrl-C) about this often
ALIGN = 64


def round_up(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


class Program:
    """Steps with their parameter blocks and scratch; no Python between the nodes of a slice."""

    def __init__(self, steps: Sequence[Step], executor: Executor, options: CompileOptions) -> None:
        self.executor = executor
        self.steps = steps
        self._blocks = new_blocks(len(steps))
        self._scratch = self._place_scratch()
        addresses = self._load(options)
        self._entries, self.labels, bounds = self._link(addresses)
        base = int(self._entries.ctypes.data)
        self._slices = [(base + 16 * a, b - a) for a, b in pairwise(bounds)]

    def _load(self, options: CompileOptions) -> dict[str, int]:
        kernels = {k.name: k for s in self.steps for k in (*s.kernel.prepare, s.kernel)}
        return load_kernels(list(kernels.values()), options.progress)

    def _place_scratch(self) -> Bytes:
        """One block for all steps: prepared operands | other shared bytes | each thread's own.

        Prepared operands have a place to themselves so that they survive until the next step that
        wants the same ones. Steps of several nodes bring the shared bytes they asked for.
        """
        nth = self.executor.n_threads
        needs = [(s.kernel.scratch(s.node, nth), bool(s.kernel.prepare)) for s in self.steps]
        prepared = round_up(max((n[0] for n, first in needs if first), default=0))
        shared = round_up(max((n[0] for n, first in needs if not first), default=0))
        local = round_up(max((n[1] for n, _ in needs), default=0))
        scratch = aligned_bytes(prepared + shared + local * nth)
        base = int(scratch.ctypes.data)
        for block, step in zip(self._blocks, self.steps, strict=True):
            kernel = step.kernel
            pack(block, [view(t) for t in step.operands], step.params(), kernel.extra(step.node))
            start = base if kernel.prepare else base + prepared
            if step.scratch is not None:
                start = address(step.scratch)
            set_scratch(block, start, base + prepared + shared, local)
        return scratch

    def _link(
        self, addresses: dict[str, int]
    ) -> tuple[npt.NDArray[np.int64], list[tuple[Tensor, str]], list[int]]:
        """Program entries, the node and kernel of each, and where slices start and end."""
        entries: list[tuple[int, int]] = []
        labels: list[tuple[Tensor, str]] = []
        bounds, seconds = [0], 0.0
        held: tuple[object, ...] = ()  # what the scratch of prepared operands has now
        first = int(self._blocks.ctypes.data)
        for i, step in enumerate(self.steps):
            block = first + 8 * WORDS * i
            wanted = prepared_by(step)
            if not wanted or wanted != held:
                for k in step.kernel.prepare:
                    entries.append((addresses[k.name], block))
                    labels.append((step.node, k.name))
            if step.kernel.prepare:
                held = wanted
            entries.append((addresses[step.kernel.name], block))
            labels.append((step.node, step.kernel.name))
            seconds += estimate(step.node)
            if seconds > SLICE_SECONDS:
                bounds.append(len(entries))
                seconds = 0.0
        if bounds[-1] != len(entries):
            bounds.append(len(entries))
        return np.array(entries, np.int64).reshape(-1, 2), labels, bounds

    def run(self) -> None:
        if self.executor.times is not None:
            self.executor.times += self._timed()
            return
        for start, count in self._slices:
            self.executor.run(start, count)

    def _timed(self) -> list[KernelTime]:
        """Run once; how long each step took, up to where all threads met after it."""
        ns = np.zeros(len(self._entries), np.int64)
        start = perf_counter_ns()
        self.executor.run(int(self._entries.ctypes.data), len(self._entries), profile=ns)
        ends = (start + np.cumsum(ns)).tolist()
        return [
            KernelTime(node, kernel, before, end)
            for (node, kernel), before, end in zip(self.labels, [start, *ends], ends, strict=False)
        ]


def prepared_by(step: Step) -> tuple[object, ...]:
    """What a step's preparing kernels make, as something to compare; () if it cannot be shared."""
    kernels = step.kernel.prepare
    if not all(k.reads for k in kernels):
        return ()
    params = step.params(), *step.kernel.extra(step.node)
    have = len(step.operands)
    return tuple(
        (k.name, params, *(id(step.operands[i]) for i in k.reads if i < have)) for k in kernels
    )


def estimate(node: Tensor) -> float:
    """A generous guess of a node's seconds on one core; only used to cut slices.

    What is written into memory of another tensor counts as its first source: of a cache, SET_ROWS
    changes as much as it is given.
    """
    sources = [s for s in node.src if s is not None]
    n, inner = node.n_elements, sources[0].ne[0] if sources else 1
    moved = node.nbytes + sum(s.nbytes for s in sources)
    if node.view_src is not None and sources and sources[0].n_elements < n:
        n, moved = sources[0].n_elements, 2 * sources[0].nbytes
    return moved / 1e10 + 2.0 * n * inner / 1e11

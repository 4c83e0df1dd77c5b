"""Compiles steps to a native program for the executor, in phases separated by barriers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ggml_cpu.barriers import phases
from ggml_cpu.bounds import CHECKED
from ggml_cpu.bounds.extents import AllowedExtents, of_layout
from ggml_cpu.driver import ENTRY_WORDS, MEET, OWN
from ggml_cpu.executor import Executor
from ggml_cpu.faults import BLOCK, FAULT, FOUND, INDEX, LIMIT, new_record
from ggml_cpu.kernel import Kernel
from ggml_cpu.layout import StepLayout
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import WORDS
from ggml_cpu.recorded import RecordedTimes
from ggml_cpu.step import Step
from ggml_py.backend import SCATTERED, CompileOptions
from ggml_py.backend.indices import out_of_range
from ggml_py.machine.shield import raise_noted
from ggml_py.ops.traffic import count_bytes, flops
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    from ggml_cpu.experts.cache import CacheUse, ExpertCache
    from ggml_cpu.experts.choice import ExpertDemand

SLICE_SECONDS = 0.05  # native time between returns to Python (Ctrl-C), which cost cache misses
OFTEN = 32  # runs after which the program is laid out with fewer barriers


class CPUProgram:
    """Steps with their parameter blocks and scratch, run without Python between steps of a slice.

    At first, a barrier follows each kernel. After OFTEN runs, a second layout has fewer barriers
    (barriers.py, private.py); computing it takes longer than it saves in a few runs.

    n_barriers  barriers per run
    """

    def __init__(self, steps: Sequence[Step], executor: Executor, options: CompileOptions) -> None:
        self.executor = executor
        self.steps = steps
        self._addresses = load(steps, options)
        self._faults = new_record()
        self._runs = 0
        self._lay_out(False)

    def settle(self) -> None:
        """Switch to the layout with fewer barriers now."""
        if self._runs < OFTEN:
            self._runs = OFTEN
            self._lay_out(self.executor.n_threads > 1)

    def _lay_out(self, often: bool) -> None:
        self._layout = layout = StepLayout(self.steps, self.executor.n_threads, often)
        layout.blocks[:, FAULT] = self._faults.ctypes.data
        self._bounds = _bounds(layout, self._faults) if CHECKED else None
        order = list(range(len(layout.entries)))
        ends = set(order)
        if often:
            phase = phases(layout.entries, layout.private)
            order.sort(key=phase.__getitem__)
            ends = {a for a, b in pairwise(order) if phase[a] != phase[b]} | {*order[-1:]}
        self._choices = self._find_choices(order)
        ends |= {order[n - 1] for n in self._choices if n}
        self._entries = self._link(self._addresses, order, ends)
        self._first = int(self._entries.ctypes.data)
        self.n_barriers = len(ends) if self.executor.n_threads > 1 else 0
        self._slices = self._cut(order, ends)
        entries = [layout.entries[i] for i in order]
        self._step_of_entry = array("l", [e.step for e in entries])
        self._kernel_of_entry = [e.kernel.name for e in entries]
        layout.settle()

    @property
    def labels(self) -> list[tuple[Tensor, str]]:
        """The node and the kernel's name of each entry, in the order of a run."""
        named = zip(self._step_of_entry, self._kernel_of_entry, strict=True)
        return [(self.steps[i].node, kernel) for i, kernel in named]

    def _link(
        self, addresses: dict[str, int], order: list[int], ends: set[int]
    ) -> npt.NDArray[np.int64]:
        """Return the driver's entries, int64 [n, ENTRY_WORDS], in `order`."""
        layout, first = self._layout, int(self._layout.blocks.ctypes.data)
        words = list[int]()
        for i in order:
            e = layout.entries[i]
            blocks = layout.rows[e.step]
            block, stride = first + 8 * WORDS * blocks[0], 8 * WORDS if len(blocks) > 1 else 0
            how = (MEET if i in ends else 0) | (OWN if e.own else 0)
            words += addresses[e.kernel.name], block, stride, how
        return np.array(words, np.int64).reshape(-1, ENTRY_WORDS)

    def _find_choices(self, order: list[int]) -> dict[int, ExpertDemand]:
        """Return the experts that must be cached before an entry, by its place in `order`. The
        entries that choose them are before it."""
        if not any(map(_is_scattered, self.steps)):
            return {}
        from ggml_cpu.experts.choice import ExpertDemand, choice_key

        known, found = set[object](), dict[int, ExpertDemand]()
        for n, i in enumerate(order):
            entry = self._layout.entries[i]
            step = self.steps[entry.step]
            key = choice_key(step) if entry.kernel is step.kernel else None
            if key is not None and key not in known:
                known.add(key)
                row = self._layout.rows[entry.step][0]
                found[n] = ExpertDemand(step, self._layout, row, self.executor)
        return found

    def _cut(self, order: list[int], ends: set[int]) -> list[tuple[int, int]]:
        """Return slices as (first entry, number of entries); each slice ends with a barrier."""
        entries = self._layout.entries
        bounds, seconds, known = [0], 0.0, dict[object, float]()
        for n, i in enumerate(order):
            if n in self._choices and n > bounds[-1]:
                bounds.append(n)
                seconds = 0.0
            step = self.steps[entries[i].step]
            if entries[i].kernel is step.kernel:
                form = step.kernel, *[t and t.ne for t in step.operands]  # equal in many layers
                if form not in known:
                    known[form] = estimate(step.node)
                seconds += known[form]
            if i in ends and (seconds > SLICE_SECONDS or n == len(order) - 1):
                bounds.append(n + 1)
                seconds = 0.0
        return [(a, b - a) for a, b in pairwise(bounds)]

    def barrier_seconds(self) -> float:
        """Return the minimum seconds per barrier; 0 without barriers."""
        return self.executor.barrier_seconds() if self.n_barriers else 0.0

    def run(self) -> None:
        """Run all steps of the program.

        Raises:
            OutOfRange: An index in a step's data is out of range.
            BoundsError: A kernel accessed memory outside its step's, if bounds are checked.
        """
        if self._choices or self.executor.times is not None:
            for _ in self.run_in_parts():
                pass
            return
        self._begin()
        for first, count in self._slices:  # two generators take longer than a few small kernels
            raise_noted()
            self.executor.run(self._address(first), count)
        self._end()

    def run_in_parts(self) -> Iterator[None]:
        """Run like `run`, but yield after each slice, so that other programs can run."""
        self._begin()
        if self.executor.times is not None:
            self.executor.times.append(self._run_timed())
        else:
            for first, count in self._ready_slices():
                self.executor.run(self._address(first), count)
                yield
        self._end()

    def _ready_slices(self) -> Iterator[tuple[int, int]]:
        """Yield the slices in order, each when its experts are cached."""
        held: dict[ExpertCache, CacheUse] = {}
        try:
            for part in self._slices:
                raise_noted()
                choice = self._choices.get(part[0])
                if choice is not None:
                    if choice.cache not in held:
                        held[choice.cache] = choice.cache.begin_use()
                    choice.ensure(held[choice.cache])
                yield part
        finally:
            for use in held.values():
                use.release()

    def _address(self, entry: int) -> int:
        return self._first + 8 * ENTRY_WORDS * entry

    def _begin(self) -> None:
        self._runs += 1
        if self._runs == OFTEN and self.executor.n_threads > 1:
            self._lay_out(True)
        self._faults[FOUND] = 0  # an interrupted run may have left a fault
        if self._bounds is not None:
            self._bounds.clear()

    def _end(self) -> None:
        if self._faults[FOUND]:
            self._raise_fault()
        if self._bounds is not None and (row := self._bounds.row()) is not None:
            raise self._bounds.error(self._find_step(row).node, self._addresses)
        if self._runs < OFTEN:
            self._layout.rest()

    def _raise_fault(self) -> None:
        block, index, n = (int(self._faults[i]) for i in (BLOCK, INDEX, LIMIT))
        blocks = self._layout.blocks
        step = self._find_step((block - int(blocks.ctypes.data)) // blocks.strides[0])
        raise out_of_range(step.node, index, n, step.operands)

    def _find_step(self, row: int) -> Step:
        """Return the step of a parameter block."""
        rows = self._layout.rows
        return next(s for s, of_step in zip(self.steps, rows, strict=True) if row in of_step)

    def _run_timed(self) -> RecordedTimes:
        """Run once and return the times of each step in each thread."""
        n = len(self._entries)
        ns = np.zeros((self.executor.n_threads, n + 1, 2), np.int64)
        shift = perf_counter_ns() - time_ns()
        for first, count in self._ready_slices() if self._choices else [(0, n)] * (n > 0):
            part = np.zeros((self.executor.n_threads, count + 1, 2), np.int64)
            self.executor.run(self._address(first), count, profile=part)
            ns[:, first : first + count] = part[:, :-1]
            ns[0, n] = part[0, -1]
        return RecordedTimes(ns, self.labels, shift if n else 0)


def _is_scattered(step: Step) -> bool:
    weight = step.operands[1] if len(step.operands) > 1 else None
    return weight is not None and weight.layout.endswith(SCATTERED)


def list_kernels(steps: Sequence[Step]) -> list[Kernel]:
    """Return the kernels of the steps without duplicates."""
    return list({k.name: k for s in steps for k in (*s.kernel.prepare, s.kernel)}.values())


def load(steps: Sequence[Step], options: CompileOptions) -> dict[str, int]:
    """Load the steps' kernels and return their addresses by name."""
    return load_kernels(list_kernels(steps), options.progress)


def _bounds(layout: StepLayout, faults: npt.NDArray[np.int64]) -> AllowedExtents:
    return AllowedExtents(layout.blocks, of_layout(layout), faults)


def estimate(node: Tensor) -> float:
    """Return an estimate of a node's seconds, used only to cut slices.

    If an op specifies no flops and no reads, an element counts as a row of the first source.
    For a result in another tensor's memory, elements are limited to the first source's.
    """
    seconds, computed = count_bytes(node) / 3e10, flops(node)
    source = node.src[0] if node.src else None
    if computed or OPS[node.op].reads or source is None:
        return seconds + computed / 1e11
    n = node.n_elements if node.view_src is None else min(node.n_elements, source.n_elements)
    return seconds + 2.0 * n * source.ne[0] / 1e11

"""Nodes frozen into a native program: (kernel address, parameter block address) per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ggml_cpu.executor import Executor
from ggml_cpu.kernel import Kernel
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import WORDS, View, new_blocks, pack, set_scratch
from ggml_py.backend import Bytes, CompileOptions, HostBuffer, aligned_bytes
from ggml_py.tensor import Tensor

SLICE_SECONDS = 0.02  # Python gets control (Ctrl-C) about this often
ALIGN = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel run for one node; `operands` are what the kernel calls dst, src0, src1, ..."""

    kernel: Kernel
    node: Tensor
    operands: tuple[Tensor | None, ...]


def address(t: Tensor) -> int:
    """Where the tensor's first byte is in this process."""
    assert isinstance(t.buffer, HostBuffer), f"{t} is not in host memory"
    return t.buffer.base + t.offset


def view(t: Tensor | None) -> View | None:
    return None if t is None else View(address(t), t.ne, t.nb)


def round_up(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


class Program:
    """Steps with their parameter blocks and scratch. Runs without Python between the nodes of a slice."""

    def __init__(self, steps: Sequence[Step], executor: Executor, options: CompileOptions) -> None:
        self.executor = executor
        self.steps = steps
        self._blocks = new_blocks(len(steps))
        self._scratch = self._place_scratch()
        addresses = self._load(options)
        self._entries, self.labels, bounds = self._link(addresses)
        base = int(self._entries.ctypes.data)
        self._slices = [(base + 16 * a, b - a) for a, b in zip(bounds, bounds[1:], strict=False)]

    def _load(self, options: CompileOptions) -> dict[str, int]:
        kernels = {k.name: k for s in self.steps for k in (*s.kernel.prepare, s.kernel)}
        return load_kernels(list(kernels.values()), options.progress)

    def _place_scratch(self) -> Bytes:
        """One block for all steps: prepared operands | other shared bytes | local bytes of each thread.

        Prepared operands have a place of their own so that they survive until the next step that
        wants the same ones.
        """
        nth = self.executor.n_threads
        needs = [s.kernel.scratch(s.node, nth) for s in self.steps]
        prepared = max((n[0] for n, s in zip(needs, self.steps, strict=True) if s.kernel.prepare), default=0)
        shared = max((n[0] for n, s in zip(needs, self.steps, strict=True) if not s.kernel.prepare), default=0)
        local = round_up(max((n[1] for n in needs), default=0))
        prepared, shared = round_up(prepared), round_up(shared)
        scratch = aligned_bytes(prepared + shared + local * nth)
        base = int(scratch.ctypes.data)
        for block, step in zip(self._blocks, self.steps, strict=True):
            pack(block, [view(t) for t in step.operands], step.node.op_params(), step.kernel.extra(step.node))
            start = base if step.kernel.prepare else base + prepared
            set_scratch(block, start, base + prepared + shared, local)
        return scratch

    def _link(self, addresses: dict[str, int]) -> tuple[np.ndarray, list[Tensor], list[int]]:
        """Program entries, the node of each, and where slices start and end."""
        entries: list[tuple[int, int]] = []
        labels: list[Tensor] = []
        bounds, seconds = [0], 0.0
        held: tuple[object, ...] = ()  # what the scratch of prepared operands has now
        first = int(self._blocks.ctypes.data)
        for i, step in enumerate(self.steps):
            block = first + 8 * WORDS * i
            wanted = prepared_by(step)
            if not wanted or wanted != held:
                for k in step.kernel.prepare:
                    entries.append((addresses[k.name], block))
                    labels.append(step.node)
            if step.kernel.prepare:
                held = wanted
            entries.append((addresses[step.kernel.name], block))
            labels.append(step.node)
            seconds += estimate(step.node)
            if seconds > SLICE_SECONDS:
                bounds.append(len(entries))
                seconds = 0.0
        if bounds[-1] != len(entries):
            bounds.append(len(entries))
        return np.array(entries, np.int64).reshape(-1, 2), labels, bounds

    def run(self) -> None:
        for start, count in self._slices:
            self.executor.run(start, count)

    def profile(self) -> list[tuple[Tensor, str, int]]:
        """Run once and tell (node, kernel, nanoseconds) of every step."""
        ns = np.zeros(len(self._entries), np.int64)
        self.executor.run(int(self._entries.ctypes.data), len(self._entries), profile=ns)
        return [(t, t.op, int(n)) for t, n in zip(self.labels, ns, strict=True)]


def prepared_by(step: Step) -> tuple[object, ...]:
    """What a step's preparing kernels make, as something to compare; () if it cannot be shared."""
    kernels = step.kernel.prepare
    if not all(k.reads for k in kernels):
        return ()
    params = step.node.op_params()
    have = len(step.operands)
    return tuple(
        (k.name, params, *(id(step.operands[i]) for i in k.reads if i < have)) for k in kernels
    )


def estimate(node: Tensor) -> float:
    """A generous guess of a node's seconds on one core; only used to cut slices."""
    moved = node.nbytes + sum(s.nbytes for s in node.src if s is not None)
    inner = node.src[0].ne[0] if node.src and node.src[0] is not None else 1
    return moved / 1e10 + 2.0 * node.n_elements * inner / 1e11

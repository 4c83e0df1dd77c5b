"""Finds inner values: results that only steps of the same program read, in memory it can choose.

Each thread runs the whole of a step that is too small to gain from more threads, and stores the
result in private memory. This needs no barrier. Other small inner values get places that are not
reused soon, so that a writer rarely waits for the readers of an old value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggml_cpu.ranges import Range, RangePieces, tensor_range
from ggml_cpu.step import Step
from ggml_py.ops.traffic import count_bytes, flops
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

ELEMENTS = 20480  # elements that a small step reads and writes: about 2 us of additions
ROW = 16  # overhead per row, in elements


def is_small(step: Step) -> bool:
    """Return True if the step takes less time than the synchronization of its threads."""
    if OPS[step.node.op].reads is not None:
        return count_bytes(step.node) <= 2 * ELEMENTS
    operands = {id(t): t for t in step.operands if t is not None}.values()
    rows = max(t.n_rows for t in operands)
    elements = sum(t.n_elements for t in operands)
    return elements + ROW * rows <= ELEMENTS and flops(step.node) <= ELEMENTS


def makes_all(t: Tensor | None) -> bool:
    """Return True if writing this result writes every byte of its range."""
    return t is not None and t.view_src is None and t.is_contiguous()


@dataclass(frozen=True, slots=True)
class Values:
    """Operands and result of each step.

    ranges   memory of each operand's tensor
    makers   index of the step that wrote each operand; -1 for inputs and for several writers
    inner    True if only steps of this program read the result
    own      True if each thread computes the result itself
    """

    ranges: list[list[Range | None]]
    makers: list[list[int]]
    inner: list[bool]
    own: list[bool]


def trace(steps: Sequence[Step], n_threads: int) -> Values:
    """Return the values of steps.

    A value is inner if each operand that reads it reads no other value, and a later step overwrites
    it completely before the program ends, so that no later reader exists.
    """
    inner = [n_threads > 1 and makes_all(s.operands[0]) for s in steps]
    ranges = [[None if t is None else tensor_range(t) for t in s.operands] for s in steps]
    written = [[r[i] for i in (0, *s.writes)] for s, r in zip(steps, ranges, strict=True)]
    pieces = RangePieces([r for some in written for r in some if r is not None])
    maker = [-1] * len(pieces)
    makers = list[list[int]]()

    def stays(before: set[int]) -> None:
        """Mark these values as not inner: they remain in their tensors."""
        for j in before:
            if j >= 0:
                inner[j] = False

    for i, step in enumerate(steps):
        found = [-1]
        for k, r in enumerate(ranges[i][1:], 1):
            if k in step.ready:
                found.append(makers[i - 1][k])
                continue
            by = set() if r is None else set(maker[pieces.find_slice(r)])
            if len(by) > 1:
                stays(by)
            found.append(by.pop() if len(by) == 1 else -1)
        for k, r in enumerate(written[i]):
            at = slice(0, 0) if r is None else pieces.find_slice(r)
            before = set(maker[at])
            again = any(j >= 0 and steps[j].node is step.node for j in before)
            if k or again or not makes_all(step.operands[0]):
                stays(before)  # bytes of the old value remain
            maker[at] = [i] * (at.stop - at.start)
        makers.append(found)
    stays(set(maker))
    own = [inner[i] and not s.writes and is_small(s) for i, s in enumerate(steps)]
    return Values(ranges, makers, inner, own)

"""Memory that each step of a program may access, and the error for other accesses.

A step may read:

- its operands, from the first to the last byte (all panels of a repacked weight)
- its parameter block and the scratch
- the kernel's constants

It may write dst, the operands in `writes`, the scratch and the record of faults. Even a vector load
past the last element is an error: padding is not allowed. Adjacent tensors are distinguished.
The check does not find an access for one operand that is completely inside another allowed operand
of the same step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ggml_cpu.bounds.check import (
    ADDRESS,
    BLOCK,
    COLUMNS,
    EXTENTS,
    FIRST,
    FOUND,
    KERNEL,
    NBYTES,
    RECORD_WORDS,
    SINK,
    SPARE_BYTES,
    WRITES,
    ZEROS,
)
from ggml_cpu.faults import BOUNDS, FAULT
from ggml_cpu.layout import StepLayout
from ggml_cpu.params import LOCAL, LOCAL_BYTES, SHARED, TENSOR_WORDS, TENSORS
from ggml_cpu.ranges import stored_bytes
from ggml_py.backend import SCATTERED, aligned_bytes
from ggml_py.errors import BoundsError
from ggml_py.tensor import Tensor

FAR = 1 << 20  # bytes: for accesses farther from any tensor, the message has no offset
Words = npt.NDArray[np.int64]


class Extent(NamedTuple):
    """A memory range that a kernel may access; the name is for messages."""

    name: str
    start: int
    nbytes: int
    writable: bool

    def distance(self, start: int, end: int) -> tuple[bool, int]:
        """Return a sort key: extents that contain `start` first, then by distance in bytes."""
        has_first = self.start <= start < self.start + self.nbytes
        return not has_first, max(self.start - end, start - self.start - self.nbytes, 0)


@runtime_checkable
class HasMatrices(Protocol):
    """The buffer of a scattered weight, with address and bytes of its matrices' memory."""

    @property
    def matrices(self) -> tuple[int, int]: ...


class AllowedExtents:
    """The allowed extents of each parameter block, and the record of refused accesses.

    Each block has the address of `faults` (faults.py), and `faults` has the address of the record.
    """

    def __init__(self, blocks: Words, extents: Sequence[Sequence[Extent]], faults: Words) -> None:
        self._blocks, self._extents, self._faults = blocks, extents, faults
        columns = 2 + max(map(len, extents), default=0)
        self._rows = np.zeros((len(blocks), columns, 3), np.int64)
        for row, block, found in zip(self._rows, blocks, extents, strict=True):
            own = (_address(block), block.nbytes, False), (_address(faults), faults.nbytes, True)
            for words, e in zip(row, (*own, *(e[1:] for e in found)), strict=False):
                words[:] = e[0], e[0] + e[1], e[2]
        self._zeros, self._sink = aligned_bytes(SPARE_BYTES), aligned_bytes(SPARE_BYTES)
        self._record = np.zeros(RECORD_WORDS, np.int64)
        self._record[FIRST], self._record[COLUMNS] = _address(blocks), columns
        for word, lies in (EXTENTS, self._rows), (ZEROS, self._zeros), (SINK, self._sink):
            self._record[word] = _address(lies)
        faults[BOUNDS] = _address(self._record)
        blocks[:, FAULT] = _address(faults)

    def row(self) -> int | None:
        """Return the index of the block of the first refused access, or None."""
        stride = self._blocks.strides[0]
        found = int(self._record[BLOCK]) - int(self._record[FIRST])
        return found // stride if self._record[FOUND] else None

    def error(self, node: Tensor, kernels: Mapping[str, int]) -> BoundsError:
        """Return the error for the first refused access and clear the record.

        kernels: addresses by name.
        """
        row = self.row()
        assert row is not None
        count, kernel, start, nbytes, writes = (
            int(self._record[word]) for word in (FOUND, KERNEL, ADDRESS, NBYTES, WRITES)
        )
        self._record[FOUND] = 0
        name = next((name for name, at in kernels.items() if at == kernel), "unknown")
        e = min(self._extents[row], key=lambda e: e.distance(start, start + nbytes))
        inside = e.start <= start and start + nbytes <= e.start + e.nbytes
        where = (
            f"at byte {start - e.start} of {e.name} ({e.nbytes} bytes"
            f"{', read-only' if inside else ''})"
        )
        if e.distance(start, start + nbytes)[1] > FAR:
            where = f"far from all memory that it may access; the nearest is {e.name}"
        return BoundsError(
            f"kernel {name} for {node.op} {node}: a {'store' if writes else 'load'} of {nbytes} "
            f"bytes {where}; {count - 1} more such accesses"
        )

    def clear(self) -> None:
        """Clear the record, in case an interrupted run left an entry."""
        self._record[FOUND] = 0


def _address(words: npt.NDArray[np.generic]) -> int:
    return int(words.__array_interface__["data"][0])


def of_layout(layout: StepLayout) -> list[list[Extent]]:
    """Return the allowed extents of each parameter block of the layout."""
    return [
        list(_extents(layout, i, layout.blocks[row]))
        for i, rows in enumerate(layout.rows)
        for row in rows
    ]


def _extents(layout: StepLayout, i: int, block: Words) -> Iterator[Extent]:
    step = layout.steps[i]
    for k, t in enumerate(step.operands):
        if t is not None:
            name = f"{'dst' if k == 0 else f'src{k - 1}'} {t}"
            start = int(block[TENSORS + TENSOR_WORDS * k])
            yield Extent(name, start, stored_bytes(t), k == 0 or k in step.writes)
            if t.layout.endswith(SCATTERED):
                yield _cached_experts(t)
    shared, local = step.kernel.scratch(step.node, 1 if layout.placed[i].own else layout.n_threads)
    if step.scratch is not None:
        shared = step.scratch.nbytes
    if shared:
        yield Extent("the scratch shared by all threads", int(block[SHARED]), shared, True)
    for thread in range(layout.n_threads if block[LOCAL_BYTES] else 1):
        start = int(block[LOCAL] + thread * block[LOCAL_BYTES])
        yield Extent(f"the scratch of thread {thread}", start, local, True)


def _cached_experts(weight: Tensor) -> Extent:
    """Return the memory of a scattered weight's matrices, shared by several layers."""
    assert isinstance(weight.buffer, HasMatrices)
    start, nbytes = weight.buffer.matrices
    return Extent(f"the cached experts of {weight}", start, nbytes, False)

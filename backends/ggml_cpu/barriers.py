"""Places barriers in a program, from the memory ranges that its entries read and write.

A phase is the set of entries between two barriers. Threads run the entries of a phase without
synchronization, so no entry of a phase writes bytes that another one accesses in another thread.
Each entry is in the earliest phase that its dependencies allow, so the number of phases is the
length of the longest dependency chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ggml_cpu.ranges import Range, RangePieces


class Accesses(Protocol):
    """Memory ranges that an entry reads and writes, as the union over all threads.

    Private memory has one copy per thread; its ranges are thread 0's addresses.
    """

    @property
    def reads(self) -> Sequence[Range]: ...

    @property
    def writes(self) -> Sequence[Range]: ...


def phases(entries: Sequence[Accesses], private: Range = (0, 0)) -> list[int]:
    """Return the phase of each entry. Run entries by phase, and in their order within a phase.

    An entry runs in a later phase than the writers of its inputs, and than the readers and writers
    of its outputs. In the range `private` the same phase suffices: each thread has its own copy.
    """
    pieces = RangePieces([w for e in entries for w in e.writes])
    read, written = [-1] * len(pieces), [-1] * len(pieces)
    found = []
    for e in entries:
        phase = 0
        reads, writes = _changing(pieces, e.reads), _changing(pieces, e.writes)
        for r, at in reads:
            phase = max(phase, max(written[at]) + _count_phases(r, private))
        for w, at in writes:
            phase = max(phase, max(max(written[at]), max(read[at])) + _count_phases(w, private))
        for _, at in reads:
            if min(read[at]) < phase:
                read[at] = [max(phase, before) for before in read[at]]
        for _, at in writes:
            written[at] = [phase] * (at.stop - at.start)
        found.append(phase)
    return found


def _changing(pieces: RangePieces, ranges: Sequence[Range]) -> list[tuple[Range, slice]]:
    """Return the ranges that any entry writes to, with their pieces."""
    found = [(r, pieces.find_slice(r)) for r in ranges]
    return [(r, at) for r, at in found if at.start < at.stop]


def _count_phases(r: Range, private: Range) -> int:
    """Return the phases needed between two accesses to the range: 0 if private, else 1."""
    return 0 if private[0] <= r[0] < private[1] else 1

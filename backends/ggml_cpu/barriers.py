"""Barriers of a program's threads, from the memory that its entries read and write.

Entries between two barriers are a phase; no two of a phase, run by different threads, touch the
same bytes unless both only read them. Each entry is in the earliest phase that those it depends on
allow, so that there are as few as the longest chain of dependencies has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ggml_cpu.ranges import Range, RangePieces


class Accesses(Protocol):
    """The memory an entry reads and writes; where several threads do, all of that together.

    In private memory each thread has its own of the same bytes: addresses are those of thread 0.
    """

    @property
    def reads(self) -> Sequence[Range]: ...

    @property
    def writes(self) -> Sequence[Range]: ...


def phases(entries: Sequence[Accesses], private: Range = (0, 0)) -> list[int]:
    """Return the phase of each entry, to be run by phases, and in their order within each.

    What an entry reads was written in an earlier phase; what it writes, others read and wrote in
    earlier ones. In private memory it may have been in the same phase, for the thread did so.
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
    """Return ranges that some entry writes to, with their pieces."""
    found = [(r, pieces.of(r)) for r in ranges]
    return [(r, at) for r, at in found if at.start < at.stop]


def _count_phases(r: Range, private: Range) -> int:
    """Return how many phases after another thread's access to the range this one's can be."""
    return 0 if private[0] <= r[0] < private[1] else 1

"""Memory layout of a program: addresses of operands and scratch, and the program's entries.

In addition to the tensors' memory there are three areas:

- scratch shared by all threads
- thread-local scratch
- private memory, one area per thread with the same layout: values that each thread computes for
  itself (private.py), and the shared scratch of steps that each thread runs alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from ggml_cpu.kernel import Kernel
from ggml_cpu.params import (
    LOCAL,
    LOCAL_BYTES,
    SHARED,
    TENSOR_WORDS,
    TENSORS,
    View,
    new_blocks,
    pack,
    set_scratch,
)
from ggml_cpu.private import ELEMENTS, Values, trace
from ggml_cpu.ranges import Range, tensor_range
from ggml_cpu.step import Step, address
from ggml_py.backend.host_memory import aligned_bytes, give_back
from ggml_py.plan.arena import Arena, PackedArena

ALIGN = 512  # bytes: coarse, so that a new place often has the same bounds as an earlier one
PREPARED, OWN_PREPARED = 2, 6  # prepared operands kept at a time: shared, private per thread
TAKEN = 4  # other scratch places that are not reused yet, so that the next steps need no barrier
INNER = 1 << 16  # maximum bytes of an inner value that is placed here, not in its tensor
KEPT = 16  # places of dead inner values that are not reused yet


@dataclass(slots=True)
class StepEntry:
    """One kernel of a step. If `own`, each thread runs all of its work."""

    kernel: Kernel
    step: int
    own: bool
    reads: Sequence[Range] = ()
    writes: Sequence[Range] = ()


@dataclass(slots=True)
class ScratchPlace:
    """A range of a scratch area, as offset and size; `private` selects the area."""

    offset: int
    nbytes: int
    private: bool


@dataclass(slots=True)
class HeldPlaces:
    """Places in one arena, by key; a place is freed after `n` newer places were requested."""

    arena: Arena | PackedArena
    private: bool
    n: int
    places: dict[object, ScratchPlace] = field(default_factory=dict)

    def find(self, key: object, nbytes: int) -> tuple[ScratchPlace, bool]:
        """Return the place of this key, new if missing or too small, and True if it existed."""
        found = self.places.pop(key, None)
        place = found if found is not None and found.nbytes >= nbytes else None
        if place is None:
            if found is not None:
                self.arena.give(found.offset, found.nbytes)
            place = ScratchPlace(self.arena.take(nbytes), nbytes, self.private)
        self.places[key] = place
        while len(self.places) > self.n:
            oldest = self.places.pop(next(iter(self.places)))
            self.arena.give(oldest.offset, oldest.nbytes)
        return place, found is place

    def place_scratch(
        self, placed: StepPlacement, step: Step, key: object, nbytes: int
    ) -> ScratchPlace:
        """Place a step's shared scratch; it is not prepared again if its place existed."""
        placed.scratch, there = place, _ = self.find(key, nbytes)
        placed.prepare = not there
        assert there or not step.ready, f"operands {step.ready} of {step} are not prepared"
        return place

    def end(self, key: object) -> None:
        """Free the place of this key."""
        place = self.places.pop(key)
        self.arena.give(place.offset, place.nbytes)


@dataclass(slots=True)
class StepPlacement:
    """Memory of a step.

    own          every thread runs the whole step
    local_bytes  bytes of thread-local scratch per thread
    value        place of its result, if that is an inner or private value
    scratch      place of its shared scratch
    local        place of all threads' local scratch, if the program does not run often
    prepare      the preparing kernels must run, since no earlier step left the same scratch
    """

    own: bool
    local_bytes: int
    value: ScratchPlace | None = None
    scratch: ScratchPlace | None = None
    local: ScratchPlace | None = None
    prepare: bool = True


class StepLayout:
    """Entries, in the order of the steps, and their parameter blocks.

    often    True if the program runs so often that tracing dependencies pays off. If False,
             entries have no reads and writes, and all values are in their tensors
    rows     for each step, the indices of its blocks: one for all threads, or one per thread
    private  private memory of thread 0; further threads follow, `stride` bytes apart
    """

    def __init__(self, steps: Sequence[Step], n_threads: int, often: bool = True) -> None:
        self.steps, self.n_threads, self.often = steps, n_threads, often
        values = trace(steps, n_threads) if often else Values([], [], [], [])
        common, own = Arena(ALIGN) if often else PackedArena(ALIGN), Arena(ALIGN)
        if isinstance(common, PackedArena):
            self.placed = _packed_places(steps, n_threads, common)
        else:
            self.placed = _places(steps, values, n_threads, common, own)
        self.local_bytes = local = max((p.local_bytes for p in self.placed), default=0)
        self.stride = own.size
        sizes = common.size, local * n_threads if often else 0, own.size * n_threads
        self.memory = aligned_bytes(sum(sizes))
        self.common = int(self.memory.ctypes.data)
        self.local = self.common + sizes[0]
        start = self.local + sizes[1]
        self.private: Range = start, start + own.size
        numbers = range(len(steps))
        self.ranges = [self._operands(i, values) for i in numbers] if often else []
        self.scratch = [self._scratch(i) for i in numbers]
        self.entries = [e for i in numbers for e in self._entries(i)]
        threads = np.arange(n_threads)
        self.shifts, self.locals = threads * own.size, self.local + threads * local
        copies = [n_threads if often and self._is_private(i) else 1 for i in numbers]
        self.rows = [range(end - n, end) for n, end in zip(copies, accumulate(copies), strict=True)]
        self.blocks = new_blocks(sum(copies))
        for i in numbers:
            self._fill(i)

    def settle(self) -> None:
        """Drop data that is needed only to build a program: thousands of objects, which every
        garbage collection would scan."""
        self.placed, self.entries, self.ranges, self.scratch = [], [], [], []

    def rest(self) -> None:
        """Return scratch pages to the OS after a run."""
        give_back(self.memory)

    def _operands(self, i: int, values: Values) -> list[Range | None]:
        """Return the ranges of a step's operands, with inner values (or parts) at their places."""
        ranges = list(values.ranges[i])
        for k, by in enumerate((i, *values.makers[i][1:])):
            place, r = self.placed[by].value if by >= 0 else None, ranges[k]
            made = values.ranges[by][0]
            if place is not None and made is not None and r is not None:
                start = self._start(place) + r[0] - made[0]
                ranges[k] = start, start + r[1] - r[0]
        return ranges

    def _scratch(self, i: int) -> Range | None:
        """Return the range of a step's shared scratch (thread 0's copy if it is private)."""
        place, given = self.placed[i].scratch, self.steps[i].scratch
        if place is None:
            return None if given is None else tensor_range(given)
        return self._start(place), self._start(place) + place.nbytes

    def _start(self, place: ScratchPlace) -> int:
        return (self.private[0] if place.private else self.common) + place.offset

    def _in_private(self, r: Range | None) -> bool:
        return r is not None and self.private[0] <= r[0] < self.private[1]

    def _is_private(self, i: int) -> bool:
        """Return True if each thread needs a separate parameter block."""
        return self.placed[i].own or any(map(self._in_private, (self.scratch[i], *self.ranges[i])))

    def _entries(self, i: int) -> list[StepEntry]:
        step, placed, entries = self.steps[i], self.placed[i], list[StepEntry]()
        if not self.often:
            first = step.kernel.prepare if placed.prepare else ()
            return [StepEntry(k, i, False) for k in (*first, step.kernel)]
        scratch = [r for r in (self.scratch[i],) if r is not None]
        alone = placed.own or self._in_private(self.scratch[i])
        for k in step.kernel.prepare if placed.prepare else ():
            anything = k.reads is None
            reads = self._select_ranges(
                i, range(1, len(step.operands)) if k.reads is None else k.reads
            )
            writes = self._select_ranges(i, (0,)) if anything else []
            entries.append(StepEntry(k, i, alone, reads, [*writes, *scratch]))
        reads = self._select_ranges(
            i, (k for k in range(1, len(step.operands)) if k not in step.ready)
        )
        writes = self._select_ranges(i, (0, *step.writes))
        (reads if step.kernel.reads_to_prepare else writes).extend(scratch)
        return [*entries, StepEntry(step.kernel, i, placed.own, reads, writes)]

    def _select_ranges(self, i: int, operands: Iterable[int]) -> list[Range]:
        ranges = self.ranges[i]
        return [r for k in operands if k < len(ranges) and (r := ranges[k]) is not None]

    def _fill(self, i: int) -> None:
        step, rows, placed, scratch = self.steps[i], self.rows[i], self.placed[i], self.scratch[i]
        if self.often:
            both = zip(step.operands, self.ranges[i], strict=True)
            views = [View(r[0], t.ne, t.nb) if t is not None and r else None for t, r in both]
        else:
            views = [None if t is None else View(address(t), t.ne, t.nb) for t in step.operands]
        first, start = self.blocks[rows[0]], scratch[0] if scratch is not None else 0
        pack(first, views, step.params(), step.kernel.extra(step.node))
        if placed.local is None:
            set_scratch(first, start, self.local, self.local_bytes)
        else:
            set_scratch(first, start, self._start(placed.local), placed.local_bytes)
        if not self.often or not self._is_private(i):
            return
        found = enumerate(self.ranges[i])
        words = [TENSORS + TENSOR_WORDS * k for k, r in found if self._in_private(r)]
        if self._in_private(scratch):
            words.append(SHARED)
        blocks = self.blocks[rows[0] : rows[-1] + 1]
        blocks[1:] = first
        for word in words:
            blocks[:, word] += self.shifts
        blocks[:, LOCAL], blocks[:, LOCAL_BYTES] = self.locals, 0


def _packed_places(
    steps: Sequence[Step], n_threads: int, arena: PackedArena
) -> list[StepPlacement]:
    """Return the places of all scratch if a barrier follows each kernel: shared scratch is free
    after its last reader, and thread-local scratch may be at any offset."""
    keys, last = list[object](), dict[int, int]()
    for i, step in enumerate(steps):
        if step.kernel.reads_to_prepare:
            makers = [-1 if t is None else last.get(id(t.root), -1) for t in step.operands]
            keys.append(preparation_key(step, makers))
        else:
            keys.append(i)
        for k in (0, *step.writes):
            if (t := step.operands[k]) is not None:
                last[id(t.root)] = i
    last_user = {key: i for i, key in enumerate(keys)}
    prepared, others = HeldPlaces(arena, False, PREPARED), HeldPlaces(arena, False, 1)
    found, places = [], list[ScratchPlace]()  # places in the order of the arena's blocks
    for i, (step, key) in enumerate(zip(steps, keys, strict=True)):
        nbytes, local = step.kernel.scratch(step.node, n_threads)
        placed = StepPlacement(False, -(-local // ALIGN) * ALIGN)
        found.append(placed)
        held = others if key == i else prepared
        if nbytes and step.scratch is None:
            place = held.place_scratch(placed, step, key, nbytes)
            places += [place] if placed.prepare else []
        if local:
            place = placed.local = ScratchPlace(0, n_threads * placed.local_bytes, False)
            arena.give(arena.take(place.nbytes), place.nbytes)
            places.append(place)
        if placed.scratch is not None and last_user[key] == i:
            held.end(key)
    for place, offset in zip(places, arena.pack(), strict=True):
        place.offset = offset
    return found


def _places(
    steps: Sequence[Step], values: Values, n_threads: int, common: Arena, own: Arena
) -> list[StepPlacement]:
    """Return the places of the shared scratch and private values of all steps.

    A step that each thread runs alone may need more scratch per thread.
    """
    keys = [preparation_key(step, values.makers[i]) or i for i, step in enumerate(steps)]
    prepared = {
        False: HeldPlaces(common, False, PREPARED),
        True: HeldPlaces(own, True, OWN_PREPARED),
    }
    others = {p: HeldPlaces(own if p else common, p, TAKEN) for p in (False, True)}
    last = {by: i for i, makers in enumerate(values.makers) for by in makers}
    ends: dict[int, list[ScratchPlace]] = {}
    past: dict[bool, list[ScratchPlace]] = {False: [], True: []}
    found = []
    for i, step in enumerate(steps):
        nbytes, local = step.kernel.scratch(step.node, 1 if values.own[i] else n_threads)
        placed = StepPlacement(values.own[i], -(-local // ALIGN) * ALIGN)
        found.append(placed)
        alone = placed.own or (n_threads > 1 and prepares_little(step))
        if step.scratch is not None:
            nbytes = step.scratch.nbytes if placed.own else 0
        if nbytes:
            held = (others if keys[i] == i else prepared)[alone]
            held.place_scratch(placed, step, keys[i], nbytes)
        made = step.operands[0]
        if made is not None and (placed.own or (values.inner[i] and made.nbytes <= INNER)):
            arena = own if placed.own else common
            placed.value = ScratchPlace(arena.take(made.nbytes), made.nbytes, placed.own)
            ends.setdefault(last.get(i, i), []).append(placed.value)
        for place in ends.pop(i, ()):
            past[place.private].append(place)
            if len(past[place.private]) > KEPT:
                over = past[place.private].pop(0)
                (own if over.private else common).give(over.offset, over.nbytes)
    return found


def prepares_little(step: Step) -> bool:
    """Return True if the preparation is so cheap that each thread can repeat it."""
    reads = step.kernel.reads_to_prepare
    read = [step.operands[i] for i in reads if i < len(step.operands)]
    elements = sum(t.n_elements for t in read if t is not None)
    if not reads or 2 * elements > ELEMENTS:
        return False
    return step.kernel.scratch(step.node, 1)[0] <= 4 * ELEMENTS


def preparation_key(step: Step, makers: Sequence[int]) -> tuple[object, ...]:
    """Return a key of a step's prepared operands; () if they cannot be shared.

    makers: steps that wrote the operands, since a tensor may be overwritten.
    """
    kernel, reads = step.kernel, step.kernel.reads_to_prepare
    if not reads:
        return ()
    operands = [(id(step.operands[i]), makers[i]) for i in reads if i < len(step.operands)]
    names, extra = [k.name for k in kernel.prepare], kernel.extra(step.node)
    return (*names, step.params_to_prepare(), *extra, *operands)

"""Work that threads take unit by unit, so that one which is slowed down takes less of it.

`next_unit` gives them in order: the node's shared scratch begins with the number of those taken.
`own_unit` gives a thread those of its own part first, the same each time: what it has written stays
near its core. There the scratch begins with a counter for each thread.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel

COUNTER = 64  # bytes of a thread's: a cache line
NEIGHBOURS = 3  # threads from which one with nothing left takes units
PER_THREAD = 4  # units a thread should find, where work can be cut at will


@kernel(reads=())
def start_units(p, ith, nth):
    """No unit is taken yet."""
    v.atomic_store(v.shared(p) + COUNTER * ith, 0)


@fn
def next_unit(p):
    """The number of a unit that no other thread has."""
    return v.atomic_add(v.shared(p), 1)


@fn
def own_unit(p, ith, nth, n):
    """The number of a unit of n that no other thread has; n where none is left."""
    for i in range(min(nth, 1 + NEIGHBOURS)):
        thread = (ith + i) % nth
        first, stop = v.split(n, thread, nth)
        unit = first + v.atomic_add(v.shared(p) + COUNTER * thread, 1)
        if unit < stop:
            return unit
    return n

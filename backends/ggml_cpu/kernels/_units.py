"""Dynamic scheduling: threads take work units one by one, so that a slowed thread takes fewer.

`next_unit` hands out units in order; the node's shared scratch begins with a counter of the units
taken. `own_unit` prefers the units of the thread's part, which is the same in each run, so the
thread finds data that it wrote in its caches. Its scratch begins with one counter per thread.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel

COUNTER = 64  # bytes per thread's counter: a cache line
NEIGHBOURS = 3  # threads from which an idle thread takes units
PER_THREAD = 4  # units per thread to aim for if work can be split freely


@kernel(reads=())
def start_units(p, ith, nth):
    """Reset the thread's counter of units taken."""
    v.atomic_store(v.shared(p) + COUNTER * ith, 0)


@fn
def next_unit(p):
    """Take the next unit and return its index; callers stop at the number of units."""
    return v.atomic_add(v.shared(p), 1)


@fn
def own_unit(p, ith, nth, n):
    """Take a unit below n and return its index.

    Return n if the parts of this thread and of the next NEIGHBOURS threads are exhausted.
    """
    for i in range(min(nth, 1 + NEIGHBOURS)):
        thread = (ith + i) % nth
        first, stop = v.split(n, thread, nth)
        unit = first + v.atomic_add(v.shared(p) + COUNTER * thread, 1)
        if unit < stop:
            return unit
    return n

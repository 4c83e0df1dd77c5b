"""Work that threads take unit by unit, so that one which is slowed down takes less of it.

The number of units taken so far is the first word of the node's shared scratch.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel

UNITS_BYTES = 64  # shared scratch for the counter
PER_THREAD = 4  # units a thread should find, where work can be cut at will


@kernel(reads=())
def start_units(p, ith, nth):
    """No unit is taken yet."""
    if ith == 0:
        v.atomic_store(v.shared(p), 0)


@fn
def next_unit(p):
    """The number of a unit that no other thread has."""
    return v.atomic_add(v.shared(p), 1)

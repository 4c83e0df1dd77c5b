"""Addresses of recurrent states that fused steps write to cache rows.

Without fusion, recurrent kernels store their states after their outputs. A fused step has one more
operand, `target`: [size, n_seqs, n_slots] with strides, or any other shape if the states are
contiguous in this order. Slot s holds the states s tokens before the last.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn


@fn
def state_address(p, target, slot, seq, size, n_seqs):
    """Return the address of a sequence's state [size], `slot` tokens before the last."""
    if v.ne(p, target, 0) == size and v.ne(p, target, 1) == n_seqs:
        return v.data(p, target) + slot * v.nb(p, target, 2) + seq * v.nb(p, target, 1)
    return v.data(p, target) + 4 * size * (slot * n_seqs + seq)


@fn
def is_overwritten(p, target, source, seq, size, n_seqs, n_slots):
    """Return True if another sequence's state overwrites `source`, the initial state of `seq`."""
    for slot in range(n_slots):
        for other in range(n_seqs):
            if other != seq and state_address(p, target, slot, other, size, n_seqs) == source:
                return True
    return False

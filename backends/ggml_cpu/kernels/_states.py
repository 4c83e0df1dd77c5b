"""Where kernels of recurrences leave their states: behind their outputs, or, in a fused step, in
the rows of a cache. Those are one more operand `target`: [size, n_seqs, n_slots], or all of it as
it lies; slot s has the states of s tokens before the last."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn


@fn
def row_at(p, target, slot, seq, size, n_seqs):
    """The state [size] of a sequence, `slot` tokens before the last."""
    if v.ne(p, target, 0) == size and v.ne(p, target, 1) == n_seqs:
        return v.data(p, target) + slot * v.nb(p, target, 2) + seq * v.nb(p, target, 1)
    return v.data(p, target) + 4 * size * (slot * n_seqs + seq)


@fn
def is_overwritten(p, target, source, seq, size, n_seqs, n_slots):
    """Whether another sequence's states go where `source` is, which this one starts from."""
    for slot in range(n_slots):
        for other in range(n_seqs):
            if other != seq and row_at(p, target, slot, other, size, n_seqs) == source:
                return True
    return False

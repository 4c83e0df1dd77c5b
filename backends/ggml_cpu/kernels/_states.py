"""Where kernels of recurrences leave their states: behind their outputs, or, in a fused step, in
the rows of a cache. Those are one more operand `target`, a view [size, n_seqs, n_slots]: slot s has
the states of s tokens before the last."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn


@fn
def row_at(p, target, slot, seq):
    """The states of a sequence, `slot` tokens before the last."""
    return v.data(p, target) + slot * v.nb(p, target, 2) + seq * v.nb(p, target, 1)

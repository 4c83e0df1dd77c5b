"""GATED_DELTA_NET on the cache itself: without the copies of the state before and after it."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels.copy import copy_bytes
from ggml_cpu.kernels.delta_net import ROWS, unit_of
from ggml_cpu.step import Step
from ggml_cpu.window import Window, rewrite
from ggml_py.tensor import Tensor


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """A block of state and the rows of factors, of every sequence."""
    size, _, _, n_seqs = node.src[2].ne
    return 0, 4 * size * (ROWS + 3) * n_seqs


def _cached(per_channel):
    unit = unit_of(per_channel)

    @kernel(scratch=scratch, name=f"gated_delta_net_cached_{'channel' if per_channel else 'scalar'}")
    def gated_delta_net_cached(p, ith, nth):
        """States are rows of src5, picked by the ids src6, and go to the rows of src7.

        A unit takes its part of all sequences before it writes any: rows may change places.
        """
        size, n_head, n_seqs = v.ne(p, 3, 0), v.ne(p, 3, 1), v.ne(p, 3, 3)
        blocks = (size + ROWS - 1) // ROWS
        per_seq = 4 * size * (ROWS + 3)
        m = v.local(p, ith)
        start, stop = v.split(blocks * n_head, ith, nth)
        for u in range(start, stop):
            first, h = u % blocks * ROWS, u // blocks
            n = min(ROWS, size - first)
            at = 4 * (h * size + first) * size
            for b in range(n_seqs):
                row = v.ld_i32(v.data(p, 7) + b * v.nb(p, 7, 0))
                source = v.data(p, 6) + row * v.nb(p, 6, 1) + at
                copy_bytes(m + b * per_seq, source, 4 * n * size)
            for b in range(n_seqs):
                unit(p, h, b, first, n, m + b * per_seq)
                copy_bytes(v.data(p, 8) + b * v.nb(p, 8, 1) + at, m + b * per_seq, 4 * n * size)

    return gated_delta_net_cached


SCALAR, CHANNEL = _cached(False), _cached(True)


@rewrite("GATED_DELTA_NET")
def in_the_cache(w: Window, i: int) -> None:
    y = w.step(i).node
    value, gate, state = y.src[2], y.src[3], y.src[5]
    if value is None or gate is None or state is None or y.param("n_snapshots") != 1:
        return
    gather = w.made_by(state)
    if gather < 0 or w.op(gather) != "GET_ROWS" or not w.private(gather, [i]):
        return
    copy = state_copy(w, i, 4 * value.n_elements)
    rows, ids = w.step(gather).node.src[:2]
    if copy < 0 or rows is None or ids is None or rows.ne[2:] != (1, 1):
        return
    kept = w.step(copy).node
    if kept.ne[0] != rows.ne[0] or kept.nb[0] != 4 or kept.ne[2:] != (1, 1):
        return
    kernel = SCALAR if gate.ne[0] == 1 and value.ne[0] > 1 else CHANNEL
    operands = (y, *y.src[:5], rows, ids, kept)
    step = Step(kernel, y, operands, y.op_params())
    w.merge((gather, i, copy), i, step, writes=(kept,), in_place=(rows,))


def state_copy(w: Window, i: int, outputs: int) -> int:
    """The step that copies the new states; -1 if they are also read otherwise."""
    found = -1
    for j in w.readers_of(w.step(i).node):
        for s in w.step(j).node.src:
            if s is None or s.view_src is not w.step(i).node or s.view_offs + s.nbytes <= outputs:
                continue
            if found >= 0 or w.op(j) != "CPY" or s.view_offs != outputs or not s.is_contiguous():
                return -1
            found = j
    return found

"""States that are carried from token to token (llama-graph.cpp:build_rs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggml_py.ops import cpy, get_rows, reshape, scale, view
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder


def read_states(
    g: GraphBuilder,
    s: Tensor,
    state_size: int,
    get_state_rows: Callable[[Tensor, Tensor], Tensor] = get_rows,
) -> Tensor:
    """Return the state that each sequence of the ubatch starts from (build_rs).

    s [state_size, cells] -> [state_size, n_seqs]
    get_state_rows  returns the result from all states and the cells I32 [n_seqs] to read

    Also clear one cell, for sequences that start again, and move the states of sequences that
    are not in the ubatch out of its cells.
    """
    inp, n_seqs = g.inp_rs, g.ubatch.n_seqs
    mctx = inp.mctx
    states = reshape(s, state_size, s.ne[1])
    rs_z = mctx.get_rs_z()
    n_zero = state_size if rs_z >= 0 else 0
    zero = view(states, (n_zero,), offset=rs_z * n_zero)
    g.expand(scale(zero, 0.0, inplace=True))
    output = g.expand(get_state_rows(states, inp.s_copy_main))
    extra = get_rows(states, inp.s_copy_extra)
    n_extra = mctx.get_n_rs() - n_seqs
    offset = (mctx.get_head() + n_seqs) * state_size
    g.expand(cpy(extra, view(s, (state_size, n_extra), offset=offset)))
    return output


def cells_2d(g: GraphBuilder, s: Tensor, size: int, slot: int = 0) -> Tensor:
    """Return the rows of s to write for `slot` tokens back, as a view [size, n_seqs]."""
    return view(s, (size, g.ubatch.n_seqs), offset=first_cell(g, slot) * size)


def cells_1d(g: GraphBuilder, s: Tensor, size: int, slot: int = 0) -> Tensor:
    """Return the same rows as `cells_2d` as one flat view [size * n_seqs]."""
    return view(s, (size * g.ubatch.n_seqs,), offset=first_cell(g, slot) * size)


def first_cell(g: GraphBuilder, slot: int) -> int:
    """Return the row of the ubatch's first sequence in group `slot` (states `slot` tokens back)."""
    mctx = g.inp_rs.mctx
    return slot * mctx.get_size() + mctx.get_head()


def n_snapshots(g: GraphBuilder) -> int:
    """Return the number of states per sequence: the latest, and states for rollback."""
    return g.cparams.n_rs_seq + 1


def slots(g: GraphBuilder) -> range:
    """Return the groups that the ubatch writes: one per token, at most n_snapshots."""
    return range(min(g.per_seq[0], n_snapshots(g)))


def store_states(
    g: GraphBuilder, s: Tensor, size: int, result: Tensor, first: int, flat: bool = False
) -> None:
    """Store the states after a recurrence's outputs: slot i, the states i tokens back, is
    written to group i of s.

    result  tensor with the new states from element `first` on, newest first, [size, n_seqs] each
    flat    copy a single state as one row
    """
    mctx, n_seqs = g.inp_rs.mctx, g.ubatch.n_seqs
    if flat and n_snapshots(g) == 1:
        new = view(result, (size * n_seqs,), offset=first)
        g.expand(cpy(new, cells_1d(g, s, size)))
        return
    shape = (size, n_seqs, len(slots(g)))
    new = view(result, shape, (size, size * n_seqs), first)
    cells = view(s, shape, (size, mctx.get_size() * size), mctx.get_head() * size)
    g.expand(cpy(new, cells))


def store_inputs(
    g: GraphBuilder, x: Tensor, width: int, cells: Callable[[int], Tensor], wanted: Iterable[int]
) -> None:
    """Store the last `width` inputs of each channel, for several tokens.
    x [width + T, C, n_seqs], earlier inputs first

    cells   returns the rows of the inputs `slot` tokens back
    wanted  slots in order; beyond the ubatch's tokens they get the earliest inputs
    """
    for slot in wanted:
        start = max(0, x.ne[0] - width - slot)
        g.expand(cpy(view(x, (width, *x.ne[1:3]), offset=start), cells(slot)))

"""States that are carried from token to token (llama-graph.cpp:build_rs)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops import cpy, get_rows, reshape, scale, view
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder


def read_states(
    g: GraphBuilder, s: Tensor, state_size: int,
    get_state_rows: Callable[[Tensor, Tensor], Tensor] = get_rows,
) -> Tensor:  # fmt: skip
    """The state each sequence of the ubatch starts from (build_rs).

    s [state_size, cells] -> [state_size, n_seqs]
    get_state_rows  makes the result of all states and the cells I32 [n_seqs] to read
    On the way one cell is cleared, for sequences that start anew, and the states of sequences
    that are not in the ubatch are moved out of its cells.
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
    """The rows of s that the ubatch's sequences write to, `slot` tokens back. [size, n_seqs]"""
    mctx = g.inp_rs.mctx
    cell = slot * mctx.get_size() + mctx.get_head()
    return view(s, (size, g.ubatch.n_seqs), offset=cell * size)


def cells_1d(g: GraphBuilder, s: Tensor, size: int) -> Tensor:
    """The same rows without an end. [size * n_seqs]"""
    return view(s, (size * g.ubatch.n_seqs,), offset=g.inp_rs.mctx.get_head() * size)

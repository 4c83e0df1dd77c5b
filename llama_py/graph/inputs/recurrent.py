"""Inputs that select the recurrent states sequences start from."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import view
from ggml_py.types import I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.recurrent import RecurrentContext
from llama_py.memory.slots import SlotContext


class InputRS:
    """Rows of the recurrent states to start from (llm_graph_input_rs).

    s_copy  I32 [n_rs] source cell of each state: first the states of the ubatch's n_seqs
            sequences (s_copy_main), then states that only move (s_copy_extra)
    """

    def __init__(self, params: GraphParams) -> None:
        self.mctx = mctx = params.mctx.states(RecurrentContext)
        n_rs, n_seqs = mctx.get_n_rs(), params.ubatch.n_seqs
        self.head, self.rs_z = mctx.get_head(), mctx.get_rs_z()  # offsets in the graph's views
        self.s_copy = new_input("rs_s_copy", I32, n_rs)
        self.s_copy_main = view(self.s_copy, (n_seqs,))
        self.s_copy_extra = view(self.s_copy, (n_rs - n_seqs,), offset=n_seqs)

    def set_input(self, ubatch: UBatch) -> None:
        n_rs = self.mctx.get_n_rs()
        write(self.s_copy, np.array([self.mctx.s_copy(i) for i in range(n_rs)], np.int32))

    def follow(self, ubatch: UBatch) -> None:
        """Keep the rows: states do not move between consecutive tokens."""

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = mctx = params.mctx.states(RecurrentContext)
        return (
            self.s_copy.ne[0] == mctx.get_n_rs()
            and self.s_copy_main.ne[0] == params.ubatch.n_seqs
            and self.head == mctx.get_head()
            and self.rs_z == mctx.get_rs_z()
        )


class InputSlots:
    """Slots with the states of a ubatch's sequences; they are offsets in the graph.

    seq      I32 [1, n_tokens] zeros: index of the state for each token of a convolution
    starts   (sequence, True if it begins at position 0) of each
    """

    def __init__(self, params: GraphParams) -> None:
        self.mctx = params.mctx.states(SlotContext)
        self.starts = _starts(params.ubatch)
        self.seq = new_input("inp_s_seq_qnext", I32, 1, params.ubatch.n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        write(self.seq, np.zeros(ubatch.n_tokens, np.int32))

    def follow(self, ubatch: UBatch) -> None:
        """Keep the zeros of the last run."""

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.states(SlotContext)
        same_size = self.seq.ne[1] == params.ubatch.n_tokens
        return same_size and self.starts == _starts(params.ubatch)


def _starts(ubatch: UBatch) -> list[tuple[int, bool]]:
    firsts = range(0, ubatch.n_tokens, ubatch.n_seq_tokens)
    return [(ubatch.seq_id[i][0], bool(ubatch.pos[i] == 0)) for i in firsts]

"""States that are carried from token to token (llama-graph.cpp:build_rs, build_inp_mem_hybrid)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops import cpy, get_rows, reshape, scale, view
from ggml_py.tensor import Tensor
from llama_py.inputs import InputAttnK, InputAttnKV, InputMemHybrid, InputRS
from llama_py.models._graph import GraphContext


class Recurrent(GraphContext):
    """Blocks that read the states of the ubatch's sequences."""

    def build_rs_inp(self) -> InputRS:
        return self.res.add_input(InputRS(self.params, self.mctx))

    def build_inp_mem_hybrid(self) -> InputMemHybrid[InputAttnKV]:
        attn = InputAttnKV(self.params, self.mctx.get_attn())
        return self.res.add_input(InputMemHybrid(attn, self._hybrid_rs()))

    def build_inp_mem_hybrid_k(self) -> InputMemHybrid[InputAttnK]:
        attn = InputAttnK(self.params, self.mctx.get_attn())
        return self.res.add_input(InputMemHybrid(attn, self._hybrid_rs()))

    def _hybrid_rs(self) -> InputRS:
        return InputRS(self.params, self.mctx.get_recr())

    def build_rs(
        self,
        inp: InputRS,
        s: Tensor,
        state_size: int,
        n_seqs: int,
        get_state_rows: Callable[[Tensor, Tensor], Tensor] = get_rows,
    ) -> Tensor:
        """The state each sequence starts from. s [state_size, cells] -> [state_size, n_seqs]

        get_state_rows  makes the result of all states and the cells I32 [n_seqs] to read
        On the way one cell is cleared, for sequences that start anew, and the states of sequences
        that are not in the ubatch are moved out of its cells.
        """
        mctx = inp.mctx
        states = reshape(s, state_size, s.ne[1])
        rs_z = mctx.get_rs_z()
        n_zero = state_size if rs_z >= 0 else 0
        zero = view(states, (n_zero,), offset=rs_z * n_zero)
        self.expand(scale(zero, 0.0, inplace=True))
        output = self.expand(get_state_rows(states, inp.s_copy_main))
        extra = get_rows(states, inp.s_copy_extra)
        n_extra = mctx.get_n_rs() - n_seqs
        offset = (mctx.get_head() + n_seqs) * state_size
        self.expand(cpy(extra, view(s, (state_size, n_extra), offset=offset)))
        return output

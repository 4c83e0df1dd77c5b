"""A short convolution with gates before and after it (models/lfm2.cpp:build_shortconv_block)."""

from __future__ import annotations

from ggml_py.ops import concat, cont, mul, pad_ext, reshape, ssm_conv, transpose, view
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import split
from llama_py.blocks.state import cells_2d, read_states, slots, store_inputs
from llama_py.graph.builder import GraphBuilder
from llama_py.memory.specs import StateSpec
from llama_py.weights import Weights


class ShortConv:
    """c * conv(b * x), projected; b, c and x are projections of the input.

    The state of a sequence is the last width - 1 products b * x, [width - 1, n].
    """

    parts_keep = StateSpec

    def __init__(self, w: Weights, n_embd: int, n: int, width: int, *, causal: bool = True) -> None:
        """Declare weights for n channels; `width`: of the convolution; `causal`: not centered."""
        self.n_embd, self.n, self.width, self.causal = n_embd, n, width, causal
        self.conv = w.tensor("shortconv.conv.weight", width, n)
        self.in_proj = w.linear(
            "shortconv.in_proj", n_embd, 3 * n, scaled=False, sections=(n, n, n)
        )
        self.out_proj = w.linear("shortconv.out_proj", n, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the gated convolution: [n_embd, n_tokens] -> same shape."""
        cur = self.in_proj(g, reshape(cur, self.n_embd, *g.per_seq))
        b, c, x = split(g.cb(cur, "shortconv_in", il), [self.n] * 3, n_dims=3)
        conv_x = self._after_state(g, transpose(mul(b, x)), il)
        cur = g.cb(ssm_conv(conv_x, self.conv), "shortconv", il)
        cur = g.cb(self.out_proj(g, mul(c, cur)), "shortconv_out", il)
        return reshape(cur, self.n_embd, g.n_tokens)

    def _after_state(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Pad x [T, n, B] with the inputs before it and store the next ubatch's inputs,
        also for the n_rs_seq tokens before the last. -> [width - 1 + T, n, B]
        """
        kept, n, n_seqs = self.width - 1, self.n, g.ubatch.n_seqs
        all_states = g.inp_rs.mctx.get_r_l(il)
        states = read_states(g, all_states, kept * n)
        states = reshape(states, kept, n, n_seqs)
        if self.causal:
            x = concat(states, x, 0)
        else:
            after = kept // 2
            before = cont(view(states, (after, n, n_seqs), offset=kept - after))
            x = pad_ext(concat(before, x, 0), 0, after, 0, 0, 0, 0, 0, 0)
        row = kept * n
        wanted = slots(g) if self.causal else range(1)
        store_inputs(g, x, kept, lambda slot: cells_2d(g, all_states, row, slot), wanted)
        return x

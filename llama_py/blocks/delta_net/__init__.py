"""The gated delta net with its short convolution (delta-net-base.cpp:llm_build_delta_net_base).

A state is [S, S] per value head: the key index is the fast one.
"""

from __future__ import annotations

import numpy as np

from ggml_py.ops import concat, cpy, gated_delta_net, reshape, rms_norm, scale, transpose, view
from ggml_py.tensor import Tensor
from llama_py.blocks.delta_net.rule import DELTA_NET, Delta, Outcome
from llama_py.blocks.delta_net.unfused import UnfusedRule
from llama_py.blocks.functions import dense, inv_sqrt
from llama_py.blocks.state import (
    cells_1d,
    cells_2d,
    n_snapshots,
    read_states,
    store_inputs,
    store_states,
)
from llama_py.graph.builder import GraphBuilder

__all__ = [
    "DELTA_NET",
    "Delta",
    "build_conv_state",
    "build_delta_net",
    "build_recurrent_attn",
    "l2_norm",
]


def l2_norm(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return x / sqrt(sum(x^2) + eps) by rows, as an RMS norm (models.h:build_gdn_l2_norm)."""
    n = x.ne[0]
    eps = float(np.float32(g.hp.l2_eps) / np.float32(n))
    return scale(rms_norm(x, eps), inv_sqrt(n))


def build_conv_state(
    g: GraphBuilder, states_all: Tensor, x: Tensor, d_conv: int, il: int
) -> Tensor:
    """Prepend each sequence's last d_conv - 1 inputs and store its new last inputs.
    x [channels, n_seq_tokens, n_seqs] -> [d_conv - 1 + n_seq_tokens, channels, n_seqs]

    With n_rs_seq > 0 the inputs as of each of the last n_rs_seq + 1 tokens are stored.
    """
    n_seqs, channels, width = g.ubatch.n_seqs, x.ne[0], d_conv - 1
    row = width * channels
    states = g.cb(read_states(g, states_all, row), "conv_states", il)
    states = g.cb(reshape(states, width, channels, n_seqs), "conv_states_reshaped", il)
    x = g.cb(transpose(x), "qkv_mixed_transposed", il)
    conv_input = g.cb(concat(states, x, 0), "conv_input", il)
    if n_snapshots(g) == 1:
        last = view(conv_input, (width, channels, n_seqs), offset=conv_input.ne[0] - width)
        last = g.cb(last, "conv_state_last", il)
        update = g.cb(cells_2d(g, states_all, row), "conv_state_update", il)
        g.expand(cpy(last, update))
    else:
        oldest_first = reversed(range(n_snapshots(g)))
        store_inputs(
            g, conv_input, width, lambda slot: cells_2d(g, states_all, row, slot), oldest_first
        )
    return conv_input


def build_recurrent_attn(
    g: GraphBuilder, states_all: Tensor, x: Delta, s: Tensor, il: int, flat: bool = False
) -> Tensor:
    """Run the delta net from state s [S, S, H, B], and store the new state or the last
    n_rs_seq + 1 states. -> [S, H, T, B]

    flat  a single state of all sequences is copied as one row
    """
    v, size = x.v, s.ne[0] * s.ne[1] * s.ne[2]
    if n_snapshots(g) > 1:
        result = g.mark_fused("delta_net", gated_delta_net(*x, s, n_snapshots(g)))
        output = view(result, v.ne, dense(v.ne))
        store_states(g, states_all, size, result, v.n_elements)
        return output
    output, new_state = build_delta_net(g, x, s, il)
    cells = (cells_1d if flat else cells_2d)(g, states_all, size)
    g.expand(cpy(g.cb(new_state, "new_state", il), cells))
    return output


def build_delta_net(g: GraphBuilder, x: Delta, s: Tensor, il: int) -> Outcome:
    """Build the outputs and the new state, with the fused op or with unfused ops."""
    form = g.form(DELTA_NET)
    if form != "fused":
        return UnfusedRule(g, il)(x, s, form)
    result = g.mark_fused("delta_net", gated_delta_net(*x, s))
    output = view(result, x.v.ne, dense(x.v.ne))
    return output, view(result, s.ne, dense(s.ne), offset=x.v.n_elements)

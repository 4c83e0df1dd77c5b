"""The gated delta net with its short convolution (delta-net-base.cpp:llm_build_delta_net_base).

A state is [S, S] per value head: the key index is the fast one.
"""

from __future__ import annotations

import numpy as np

from ggml_py.ops import concat, cpy, gated_delta_net, reshape, rms_norm, scale, transpose, view
from ggml_py.tensor import Tensor
from llama_py.blocks.delta_net.rule import DELTA_NET, Delta, Outcome
from llama_py.blocks.delta_net.unfused import Unfused
from llama_py.blocks.functions import dense, inv_sqrt
from llama_py.blocks.state import cells_2d, read_states
from llama_py.graph.builder import GraphBuilder

__all__ = [
    "DELTA_NET", "Delta", "build_conv_state", "build_delta_net", "build_recurrent_attn", "l2_norm",
]  # fmt: skip


def l2_norm(g: GraphBuilder, x: Tensor) -> Tensor:
    """x / sqrt(sum(x^2) + eps) along rows, as an RMS norm (models.h:build_gdn_l2_norm)."""
    n = x.ne[0]
    eps = float(np.float32(g.hp.f_norm_rms_eps) / np.float32(n))
    return scale(rms_norm(x, eps), inv_sqrt(n))


def build_conv_state(
    g: GraphBuilder, states_all: Tensor, x: Tensor, d_conv: int, il: int
) -> Tensor:
    """The last d_conv - 1 inputs of each sequence before this ubatch's, and the new last ones
    stored. x [channels, n_seq_tokens, n_seqs] -> [d_conv - 1 + n_seq_tokens, channels, n_seqs]

    With n_rs_seq > 0 the inputs as of each of the last n_rs_seq + 1 tokens are stored.
    """
    n_seqs, channels, width = g.ubatch.n_seqs, x.ne[0], d_conv - 1
    states = g.cb(read_states(g, states_all, width * channels), "conv_states", il)
    states = g.cb(reshape(states, width, channels, n_seqs), "conv_states_reshaped", il)
    x = g.cb(transpose(x), "qkv_mixed_transposed", il)
    conv_input = g.cb(concat(states, x, 0), "conv_input", il)
    n_slots = g.cparams.n_rs_seq + 1
    for slot in reversed(range(n_slots)):
        start = max(0, conv_input.ne[0] - width - slot)
        last = view(conv_input, (width, channels, n_seqs), offset=start)
        update = cells_2d(g, states_all, width * channels, slot)
        if n_slots == 1:
            g.cb(last, "conv_state_last", il)
            g.cb(update, "conv_state_update", il)
        g.expand(cpy(last, update))
    return conv_input


def build_recurrent_attn(
    g: GraphBuilder, states_all: Tensor, x: Delta, s: Tensor, il: int
) -> Tensor:
    """Run the delta net from state s [S, S, H, B], and store the new state or the last
    n_rs_seq + 1 of them. -> [S, H, T, B]"""
    v, n_seqs, n_slots = x.v, s.ne[3], g.cparams.n_rs_seq + 1
    size = s.ne[0] * s.ne[1] * s.ne[2]
    if n_slots == 1:
        output, new_state = build_delta_net(g, x, s, il)
        g.cb(output, "attn_output", il)
        g.cb(new_state, "new_state", il)
        g.expand(cpy(new_state, cells_2d(g, states_all, size)))
        return output
    result = g.fused("delta_net", gated_delta_net(*x, s, n_slots))
    output = g.cb(view(result, v.ne, dense(v.ne)), "attn_output", il)
    # Slot i, the state i tokens back, goes to rollback group i; only n_written are there.
    mctx = g.inp_rs.mctx
    shape = (size, n_seqs, min(v.ne[2], n_slots))
    snapshots = view(result, shape, (size, size * n_seqs), offset=v.n_elements)
    group = mctx.get_size() * size
    cells = view(states_all, shape, (size, group), offset=mctx.get_head() * size)
    g.expand(cpy(snapshots, cells))
    return output


def build_delta_net(g: GraphBuilder, x: Delta, s: Tensor, il: int) -> Outcome:
    """Outputs and new state, by the fused op or by its parts."""
    form = g.form(DELTA_NET)
    if form != "fused":
        return Unfused(g, il)(x, s, form)
    result = g.fused("delta_net", gated_delta_net(*x, s))
    output = view(result, x.v.ne, dense(x.v.ne))
    return output, view(result, s.ne, dense(s.ne), offset=x.v.n_elements)

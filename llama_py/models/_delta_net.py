"""The gated delta net with its short convolution (delta-net-base.cpp:llm_build_delta_net_base).

S is the size of a head, H value heads, H_k key heads. A state is [S, S] per value head: the key
index is the fast one.
"""

from __future__ import annotations

import numpy as np

from ggml_py.ops import (
    concat,
    cpy,
    gated_delta_net,
    reshape,
    rms_norm,
    scale,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.inputs import InputRS
from llama_py.models._attention import Attention
from llama_py.models._delta_net_unfused import UnfusedDeltaNet
from llama_py.models._ffn import FeedForward
from llama_py.models._graph import inv_sqrt
from llama_py.models._recurrent import Recurrent


class DeltaNet(Attention, FeedForward, Recurrent, UnfusedDeltaNet):
    """Blocks of linear attention layers."""

    def build_l2_norm(self, x: Tensor) -> Tensor:
        """x / sqrt(sum(x^2) + eps) along rows, as an RMS norm (models.h:build_gdn_l2_norm)."""
        n = x.ne[0]
        eps = float(np.float32(self.hparams.f_norm_rms_eps) / np.float32(n))
        return scale(rms_norm(x, eps), inv_sqrt(n))

    def build_conv_state(
        self, inp: InputRS, states_all: Tensor, x: Tensor, d_conv: int, il: int
    ) -> Tensor:
        """The last d_conv - 1 inputs of each sequence before this ubatch's, and the new last ones
        stored. x [channels, n_seq_tokens, n_seqs] -> [d_conv - 1 + n_seq_tokens, channels, n_seqs]

        With n_rs_seq > 0 the inputs as of each of the last n_rs_seq + 1 tokens are stored.
        """
        n_seqs, channels, width = self.ubatch.n_seqs, x.ne[0], d_conv - 1
        states = self.build_rs(inp, states_all, self.hparams.n_embd_r, n_seqs)
        self.cb(states, "conv_states", il)
        states = self.cb(reshape(states, width, channels, n_seqs), "conv_states_reshaped", il)
        x = self.cb(transpose(x), "qkv_mixed_transposed", il)
        conv_input = self.cb(concat(states, x, 0), "conv_input", il)
        n_slots = self.cparams.n_rs_seq + 1
        for slot in reversed(range(n_slots)):
            start = max(0, conv_input.ne[0] - width - slot)
            last = view(conv_input, (width, channels, n_seqs), offset=start)
            cell = slot * inp.mctx.get_size() + inp.mctx.get_head()
            size = width * channels
            update = view(states_all, (size, n_seqs), offset=cell * size)
            if n_slots == 1:
                self.cb(last, "conv_state_last", il)
                self.cb(update, "conv_state_update", il)
            self.expand(cpy(last, update))
        return conv_input

    def build_recurrent_attn(
        self, inp: InputRS, states_all: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor,
        b: Tensor, s: Tensor, il: int,
    ) -> Tensor:  # fmt: skip
        """Run the delta net from state s, and store the new state or the last n_rs_seq + 1 of them.

        q, k [S, H_k, T, B], v [S, H, T, B], g [1 or S, H, T, B], b [1, H, T, B], s [S, S, H, B]
        -> [S, H, T, B]
        """
        size, head = self.hparams.n_embd_s, inp.mctx.get_head()
        n_seqs, n_slots = s.ne[3], self.cparams.n_rs_seq + 1
        if n_slots == 1:
            output, new_state = self.build_delta_net(q, k, v, g, b, s, il)
            self.cb(output, "attn_output", il)
            self.cb(new_state, "new_state", il)
            cells = view(states_all, (size, n_seqs), offset=head * size)
            self.expand(cpy(new_state, cells))
            return output
        result = gated_delta_net(q, k, v, g, b, s, n_slots)
        self.res.fused["delta_net"].append(result)
        output = self.cb(view(result, v.ne, _dense(v)), "attn_output", il)
        # Slot i, the state i tokens back, goes to rollback group i; only n_written are there.
        n_written = min(v.ne[2], n_slots)
        shape = (size, n_seqs, n_written)
        snapshots = view(result, shape, (size, size * n_seqs), offset=v.n_elements)
        group = inp.mctx.get_size() * size
        cells = view(states_all, shape, (size, group), offset=head * size)
        self.expand(cpy(snapshots, cells))
        return output

    def build_delta_net(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, s: Tensor, il: int
    ) -> tuple[Tensor, Tensor]:
        """-> outputs [S, H, T, B], new state [S, S, H, B], by the fused op or by its parts."""
        if self.cparams.delta_net != "fused":
            return self.build_delta_net_unfused(q, k, v, g, b, s, il)
        result = gated_delta_net(q, k, v, g, b, s)
        self.res.fused["delta_net"].append(result)
        output = view(result, v.ne, _dense(v))
        return output, view(result, s.ne, _dense(s), offset=v.n_elements)


def _dense(t: Tensor) -> tuple[int, int, int]:
    """Strides, in elements, of a dense tensor of t's shape."""
    return (t.ne[0], t.ne[0] * t.ne[1], t.ne[0] * t.ne[1] * t.ne[2])

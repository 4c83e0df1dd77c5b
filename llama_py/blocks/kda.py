"""Kimi's delta attention: a delta net with a gate per dimension (shared by
models/kimi-linear.cpp, kimi-k3.cpp and glm5-next.cpp)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ggml_py._moved import Former
from ggml_py.ops import (
    add,
    concat,
    cont,
    mul,
    reshape,
    scale,
    sigmoid,
    silu,
    softplus,
    ssm_conv,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Projections
from llama_py.blocks.delta_net import Delta, build_recurrent_attn, l2_norm
from llama_py.blocks.state import first_cell, n_snapshots, read_states, store_inputs
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import LayerShape
from llama_py.weights import Weights


class KDA(ABC):
    """A delta net layer of n_head heads of `size`."""

    def __init__(self, w: Weights, n_embd: int, n_head: int, size: int, d_conv: int) -> None:
        n_inner = n_head * size
        self.n_head, self.size, self.d_conv, self.n_inner = n_head, size, d_conv, n_inner
        names = (f"ssm_conv1d_{part}.weight" for part in "qkv")
        self.convs = [w.tensor(name, d_conv, 1, n_inner, other=(d_conv, n_inner)) for name in names]
        shape = LayerShape(n_head, n_head, size, size, 0)
        self.qkv = Projections(w, n_embd, shape, bias="unread", scaled=False)
        self.declare_decay(w, n_embd)
        self.beta = w.linear("ssm_beta", n_embd, n_head, scaled=False)
        self.dt = w.tensor("ssm_dt.bias", n_inner)
        self.norm = w.norm("ssm_norm", size)
        self.output = w.linear("attn_output", n_inner, n_embd, scaled=False)

    def declare_decay(self, w: Weights, n_embd: int) -> None:
        """Declare the low-rank projections that decays are computed from."""
        self.f_a = w.linear("ssm_f_a", n_embd, self.size, scaled=False)
        self.f_b = w.linear("ssm_f_b", self.size, self.n_inner, scaled=False)

    def rollback_distances(self, g: GraphBuilder) -> range:
        """Return the distances, in tokens, of convolution inputs that are stored for rollback."""
        return range(n_snapshots(g))

    @property
    def n_embd_r(self) -> int:
        """Floats of convolution state: of queries, keys and values."""
        return 3 * (self.d_conv - 1) * self.n_inner

    @property
    def n_embd_s(self) -> int:
        """Floats of recurrent state."""
        return self.size * self.n_inner

    @abstractmethod
    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape."""

    def project_and_convolve(self, g: GraphBuilder, cur: Tensor, il: int) -> list[Tensor]:
        """Project and convolve cur [n_embd, n_tokens] to Q, K and V, each [S, H, T, B]."""
        states = g.cb(g.inp_rs.mctx.get_r_l(il), "conv_states_all", il)
        start = read_states(g, states, self.n_embd_r)
        parts = self.qkv.rows(g, cur, il)
        return [self._convolve(g, states, start, i, x) for i, x in enumerate(parts)]

    def _convolve(
        self, g: GraphBuilder, all_states: Tensor, start: Tensor, part: int, x: Tensor
    ) -> Tensor:
        """Convolve x [n_inner, n_tokens] after the inputs in `start` and store the new last inputs,
        one copy for each of the last n_rs_seq + 1 tokens. -> [S, H, T, B]

        A row of states has, for queries, keys and values (part 0, 1, 2): [d_conv - 1, n_inner].
        """
        n_inner, width, row = self.n_inner, self.d_conv - 1, self.n_embd_r
        ne, strides = (width, n_inner, g.ubatch.n_seqs), (width, row)
        first = part * width * n_inner
        x = transpose(reshape(x, n_inner, *g.per_seq))
        conv_x = concat(view(start, ne, strides, first), x, 0)

        def cells(slot: int) -> Tensor:
            return view(all_states, ne, strides, first_cell(g, slot) * row + first)

        store_inputs(g, conv_x, width, cells, self.rollback_distances(g))
        y = ssm_conv(conv_x, reshape(self.convs[part], self.d_conv, n_inner))
        y = silu(reshape(y, n_inner, g.n_tokens))
        return reshape(y, self.size, self.n_head, *g.per_seq)

    def state(self, g: GraphBuilder, il: int) -> Tensor:
        """Return the states that sequences start from, [S, S, H, B]."""
        state = read_states(g, g.inp_rs.mctx.get_s_l(il), self.n_embd_s)
        return reshape(state, self.size, self.size, self.n_head, g.ubatch.n_seqs)

    def normalize_heads(self, g: GraphBuilder, *parts: Tensor) -> list[Tensor]:
        """Scale queries and keys to length one."""
        return [l2_norm(g, t) for t in parts]

    def project(self, g: GraphBuilder, output: Tensor, gate: Tensor, il: int) -> Tensor:
        """Normalize, gate and project the rule's output: [S, H, n_tokens] -> [n_embd, n_tokens]."""
        output = self.norm(g, reshape(output, self.size, self.n_head, g.n_tokens), "kda_normed", il)
        output = mul(output, sigmoid(gate))
        cur = self.output(g, cont(output, self.n_inner, g.n_tokens))
        return g.cb(cur, "kda_out", il)

    stored = Former("rollback_distances")
    convolved = Former("project_and_convolve")
    normed = Former("normalize_heads")


class BoundedKDA(KDA):
    """lower_bound: decays are exp(lower_bound * sigmoid); None: exp of a softplus"""

    def __init__(
        self,
        w: Weights,
        n_embd: int,
        n_head: int,
        size: int,
        d_conv: int,
        lower_bound: float | None,
    ) -> None:
        super().__init__(w, n_embd, n_head, size, d_conv)
        self.a = w.tensor("ssm_a", n_head)
        self.lower_bound = lower_bound

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        size, n_head = self.size, self.n_head
        q, k, v = self.project_and_convolve(g, cur, il)
        for t, name in ((q, "kda_q_conv"), (k, "kda_k_conv"), (v, "kda_v_conv")):
            g.cb(t, name, il)
        gate = reshape(self.decay(g, cur, il), size, n_head, *g.per_seq)
        beta = reshape(self.beta(g, cur), 1, n_head, *g.per_seq)
        beta = g.cb(sigmoid(beta), "kda_beta", il)
        state = self.state(g, il)
        q, k = self.normalize_heads(g, q, k)
        states = g.inp_rs.mctx.get_s_l(il)
        output = build_recurrent_attn(g, states, Delta(q, k, v, gate, beta), state, il)
        output = g.cb(cont(g.cb(output, "attn_output", il)), "kda_scan_out", il)
        out_gate = reshape(self.out_gate(g, cur), size, n_head, g.n_tokens)
        return self.project(g, output, g.cb(out_gate, "kda_g2", il), il)

    def decay(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Log of each channel's decay; ssm_a is -exp(A_log). -> [S, H, n_tokens]"""
        ne = (self.size, self.n_head, g.n_tokens)
        gate = self.f_b(g, self.f_a(g, cur))
        gate, a = add(gate, self.dt), reshape(self.a, 1, self.n_head, 1)
        if self.lower_bound is None:
            gate = mul(reshape(softplus(gate), *ne), a)
        else:
            gate = mul(reshape(gate, *ne), a)
            gate = scale(sigmoid(scale(gate, -1.0)), self.lower_bound)
        return g.cb(gate, "kda_g1", il)

    @abstractmethod
    def out_gate(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Project to the result's gate: [n_embd, n_tokens] -> [S * H, n_tokens]."""

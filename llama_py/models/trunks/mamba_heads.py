"""A selective SSM with one decay per head, chosen by small normed vectors
(models/plamo2.cpp:build_plamo2_mamba_layer)."""

from __future__ import annotations

from ggml_py.ops import (
    add,
    concat,
    cont,
    mul,
    permute,
    reshape,
    silu,
    ssm_conv,
    ssm_scan,
    swiglu_split,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import heads, split
from llama_py.blocks.mamba import SSMHParams
from llama_py.blocks.state import (
    cells_1d,
    n_snapshots,
    read_states,
    slots,
    store_inputs,
    store_states,
)
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams.shard import Steps, run_steps
from llama_py.memory.specs import StateSpec
from llama_py.weights import Weights


class MambaHeads:
    """ssm_dt_rank is the number of heads; each has its gate and input side by side."""

    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: SSMHParams, rank: int) -> None:
        """Declare the weights; rank: of the steps."""
        n_head, d_inner, d_state = hp.ssm_dt_rank, hp.ssm_d_inner, hp.ssm_d_state
        self.hp, self.n_head, self.dim = hp, n_head, d_inner // n_head
        self.sizes = sizes = (d_state, d_state, rank)  # inputs, outputs, steps
        self.in_proj = w.linear("ssm_in", hp.n_embd, 2 * d_inner, scaled=False)
        self.conv1d = w.tensor("ssm_conv1d.weight", hp.ssm_d_conv, d_inner)
        self.x = w.linear("ssm_x", d_inner, sum(sizes), scaled=False)
        self.dt = w.linear("ssm_dt", rank, n_head, bias="needed", scaled=False)
        self.a, self.d = w.tensor("ssm_a", n_head), w.tensor("ssm_d", n_head)
        self.out = w.linear("ssm_out", d_inner, hp.n_embd, scaled=False)
        names = ("ssm_b_norm", "ssm_c_norm", "ssm_dt_norm")  # the file has them without .weight
        self.norms = [Norm(w.tensor(name, n)) for name, n in zip(names, sizes, strict=True)]

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape."""
        return run_steps(self.steps(g, cur, il))

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply the layer, yielding B, C and dt, which need all heads, before the scan."""
        d_inner = self.hp.ssm_d_inner
        states = self._conv_states(g, il)
        z, x = self._project(g, cur, il)
        x = self._convolve(g, states, x, il)
        chosen = yield g.cb(self.x(g, x), "mamba_bcdt_proj", il)
        y = swiglu_split(cont(z), self._scan(g, x, chosen, il))
        y = g.cb(y, "mamba_y_swiglu_z", il)
        y = view(y, (d_inner, *g.per_seq), (d_inner, d_inner * g.per_seq[0]))
        cur = g.cb(self.out(g, y), "mamba_out_proj", il)
        return g.cb(reshape(cur, cur.ne[0], g.n_tokens), "mamba_out", il)

    def _conv_states(self, g: GraphBuilder, il: int) -> Tensor:
        """Return the last inputs of each sequence, [d_conv - 1, d_inner, n_seqs]."""
        hp = self.hp
        states = read_states(g, g.inp_rs.mctx.get_r_l(il), hp.n_embd_r)
        return reshape(states, hp.ssm_d_conv - 1, hp.ssm_d_inner, g.ubatch.n_seqs)

    def _project(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Project to gates [dim, n_head, T, B] and inputs [d_inner, T, B]."""
        dim, n_head = self.dim, self.n_head
        both = self.in_proj(g, reshape(cur, cur.ne[0], *g.per_seq))
        g.cb(both, "mamba_in_proj", il)
        if min(g.per_seq) == 1:  # llama.cpp always does, and mixes tokens of several sequences
            both = permute(both, 0, 2, 1, 3)
        both = g.cb(cont(both, 2 * dim, n_head, *g.per_seq), "mamba_in_proj_out", il)
        x = cont(view(both, (dim, *both.ne[1:]), offset=dim), dim * n_head, *g.per_seq)
        g.cb(x, "mamba_x_split", il)
        return g.cb(view(both, (dim, *both.ne[1:])), "mamba_z_split", il), x

    def _convolve(self, g: GraphBuilder, states: Tensor, x: Tensor, il: int) -> Tensor:
        """Convolve x [d_inner, T, B] and store the last inputs for each rollback position. -> like
        x"""
        r_l, row = g.inp_rs.mctx.get_r_l(il), self.hp.n_embd_r
        conv_x = g.cb(concat(states, transpose(x), 0), "mamba_conv1d_input", il)
        store_inputs(g, conv_x, states.ne[0], lambda slot: cells_1d(g, r_l, row, slot), slots(g))
        g.cb(r_l, "mamba_conv1d_state", il)
        x = g.cb(ssm_conv(conv_x, self.conv1d), "mamba_conv1d", il)
        return g.cb(silu(x), "mamba_conv1d_silu", il)

    def _scan(self, g: GraphBuilder, x: Tensor, chosen: Tensor, il: int) -> Tensor:
        """Scan x [d_inner, T, B] by chosen [sum(sizes), T, B]. -> [dim, n_head, T, B]"""
        names = ("mamba_B", "mamba_C", "mamba_dt")
        parts = split(chosen, self.sizes, n_dims=3)
        for part, name in zip(parts, names, strict=True):
            g.cb(part, f"{name}_raw", il)
        pairs = zip(self.norms, parts, strict=True)
        b, c, dt = (norm(g, part, il=il) for norm, part in pairs)
        for part, name in zip((b, c, dt), names, strict=True):
            g.cb(part, f"{name}_normed", il)
        dt = g.cb(self.dt(g, dt), "mamba_dt_proj", il)  # [n_head, T, B]
        a = g.cb(reshape(self.a, 1, self.n_head), "mamba_A", il)
        x = heads(x, self.dim, self.n_head, *g.per_seq)
        b, c = (heads(t, t.ne[0], 1, *g.per_seq) for t in (b, c))
        y = g.cb(self._scan_heads(g, x, dt, a, b, c, il), "mamba_y_view", il)
        y = add(y, mul(x, reshape(self.d, 1, self.n_head)))
        return g.cb(y, "mamba_y_add_d", il)

    def _scan_heads(
        self, g: GraphBuilder, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, il: int
    ) -> Tensor:
        """Scan and store the new states. -> like x"""
        hp, all_states = self.hp, g.inp_rs.mctx.get_s_l(il)

        def run_scan(states: Tensor, ids: Tensor) -> Tensor:
            states = reshape(states, hp.ssm_d_state, self.dim, self.n_head, states.ne[1])
            return ssm_scan(states, x, dt, a, b, c, ids, n_snapshots(g))

        result = g.cb(read_states(g, all_states, hp.n_embd_s, run_scan), "mamba_ssm_scan", il)
        store_states(g, all_states, hp.n_embd_s, result, x.n_elements, flat=True)
        g.cb(all_states, "mamba_ssm_states", il)
        row = self.dim * self.n_head
        return view(result, x.ne, (self.dim, row, row * g.per_seq[0]))

"""Selective state spaces (models/mamba-base.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ggml_py.ops import (
    add,
    concat,
    cont,
    mul,
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
from llama_py.blocks.state import (
    cells_1d,
    cells_2d,
    n_snapshots,
    read_states,
    slots,
    store_inputs,
    store_states,
)
from llama_py.gguf.keys import Keys, flag, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.hparams.shard import Shard, Steps, run_steps
from llama_py.memory.specs import StateSpec
from llama_py.weights import Bias, Weights

if TYPE_CHECKING:
    from typing_extensions import Self


class SSMHParams(HParams):
    """ssm_d_conv  width of the convolution; ssm_d_inner  dimensions; ssm_d_state  states of each;
    ssm_dt_rank  rank of the time step, or heads; ssm_n_group  groups of dimensions with convolved
    inputs and outputs; conv_dim  dimensions of the convolution
    """

    ssm_d_conv: int = uint("ssm.conv_kernel", least=1)
    ssm_d_inner: int = uint("ssm.inner_size", least=1)
    ssm_d_state: int = uint("ssm.state_size", least=1)
    ssm_dt_rank: int = uint("ssm.time_step_rank", least=1)
    ssm_n_group: int = uint("ssm.group_count", 0)
    ssm_dt_b_c_rms: bool = flag("ssm.dt_b_c_rms", False)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self._derive()

    def _derive(self) -> None:
        self.conv_dim = sum(self.conv_sections)
        self.n_embd_r = (self.ssm_d_conv - 1) * self.conv_dim
        self.n_embd_s = self.ssm_d_state * self.ssm_d_inner

    @property
    def conv_sections(self) -> tuple[int, int, int]:
        """Dimensions of the scan's input, of B (into states) and of C (out of states)."""
        n = self.ssm_n_group * self.ssm_d_state
        return self.ssm_d_inner, n, n

    @property
    def state_sections(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(n * (self.ssm_d_conv - 1) for n in self.conv_sections), ()

    def shared(self, share: Shard) -> Self:
        """Return the share of groups with their heads; without groups, of dimensions."""
        hp = super().shared(share)
        n_group = self.ssm_n_group
        if n_group:
            hp.ssm_n_group = share.count_own(n_group, self.ssm_d_inner // n_group, "ssm_out")
            hp.ssm_dt_rank = self.ssm_dt_rank // n_group * hp.ssm_n_group
            hp.ssm_d_inner = self.ssm_d_inner // n_group * hp.ssm_n_group
        else:
            hp.ssm_d_inner = share.count_own(self.ssm_d_inner, 1, "ssm_out", "ssm_x")
        hp._derive()
        return hp

    def check_groups(self, keys: Keys) -> None:
        """Raise an error unless Mamba-2's sizes divide each other."""
        n_group = self.ssm_n_group
        if n_group == 0 or self.ssm_d_inner % n_group or self.ssm_dt_rank % n_group:
            raise keys.error("ssm.group_count", "must divide inner_size and time_step_rank")
        if self.ssm_d_inner % self.ssm_dt_rank:
            raise keys.error("ssm.time_step_rank", f"must divide inner_size = {self.ssm_d_inner}")


class _Mamba:
    """The convolution that both kinds begin with."""

    def __init__(self, w: Weights, hp: SSMHParams, conv_bias: Bias) -> None:
        self.hp = hp
        sections = hp.conv_sections
        self.conv1d = w.tensor("ssm_conv1d.weight", hp.ssm_d_conv, hp.conv_dim, sections=sections)
        declare = w.tensor if conv_bias == "needed" else w.optional_tensor
        self.conv1d_b = declare("ssm_conv1d.bias", hp.conv_dim, sections=sections)
        self.out = w.linear("ssm_out", hp.ssm_d_inner, hp.n_embd)

    def _conv_states(self, g: GraphBuilder, il: int) -> Tensor:
        """Return the last inputs of each sequence, [d_conv - 1, conv_dim, n_seqs]."""
        hp = self.hp
        states = read_states(g, g.inp_rs.mctx.get_r_l(il), hp.n_embd_r)
        return reshape(states, hp.ssm_d_conv - 1, hp.conv_dim, g.ubatch.n_seqs)

    def _convolve(
        self, g: GraphBuilder, states: Tensor, x: Tensor, cells: Callable[[int], Tensor]
    ) -> Tensor:
        """Convolve x [conv_dim, T, B] after `states`, and store the last inputs for each rollback
        position in cells(slot)."""
        conv_x = concat(states, transpose(x), 0)
        store_inputs(g, conv_x, states.ne[0], cells, slots(g))
        x = ssm_conv(conv_x, self.conv1d)
        return silu(x if self.conv1d_b is None else add(x, self.conv1d_b))


class MambaMixer(_Mamba):
    """Steps, inputs and outputs chosen by each token (build_mamba_layer)."""

    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: SSMHParams, *, normed: bool = False) -> None:
        """Declare the weights; `normed`: dt, B and C have norms with weights."""
        super().__init__(w, hp, "needed")
        d_inner, d_state = hp.ssm_d_inner, hp.ssm_d_state
        sizes = {"ssm_dt_norm": hp.ssm_dt_rank, "ssm_b_norm": d_state, "ssm_c_norm": d_state}
        self.norms = [w.norm(name, n) for name, n in sizes.items()] if normed else []
        if hp.ssm_dt_b_c_rms and not normed:
            self.norms = [Norm()] * 3
        halves = (d_inner, d_inner)
        self.in_proj = w.linear("ssm_in", hp.n_embd, 2 * d_inner, sections=halves)
        self.x = w.linear("ssm_x", d_inner, hp.ssm_dt_rank + 2 * d_state, scaled=False)
        self.dt = w.linear("ssm_dt", hp.ssm_dt_rank, d_inner, bias="needed", scaled=False)
        self.a = w.tensor("ssm_a", d_state, d_inner)
        self.d = w.tensor("ssm_d", d_inner)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape."""
        return run_steps(self.steps(g, cur, il))

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply the layer, yielding dt, B and C, which need all dimensions, before the scan."""
        hp, d_inner = self.hp, self.hp.ssm_d_inner
        states = self._conv_states(g, il)
        cur = reshape(cur, cur.ne[0], *g.per_seq)
        x, z = split(self.in_proj(g, cur), [d_inner, d_inner], n_dims=3)
        r_l = g.inp_rs.mctx.get_r_l(il)
        x = self._convolve(g, states, x, lambda slot: cells_1d(g, r_l, hp.n_embd_r, slot))
        dt_b_c = yield self.x(g, x)  # [dt_rank + 2 * d_state, T, B]
        y = add(self._scan(g, x, dt_b_c, il), mul(x, self.d))
        cur = self.out(g, swiglu_split(cont(z), y))
        return reshape(cur, cur.ne[0], g.n_tokens)

    def _scan(self, g: GraphBuilder, x: Tensor, dt_b_c: Tensor, il: int) -> Tensor:
        """Scan x [d_inner, T, B], each channel as a head of size one. -> like x"""
        hp, d_inner = self.hp, x.ne[0]
        rank, d_state = hp.ssm_dt_rank, hp.ssm_d_state
        dt = view(dt_b_c, (rank, *g.per_seq))
        b = heads(dt_b_c, d_state, 1, *g.per_seq, offset=rank)
        c = heads(dt_b_c, d_state, 1, *g.per_seq, offset=rank + d_state)
        if self.norms:
            pairs = zip(self.norms, (dt, b, c), strict=True)
            dt, b, c = (norm(g, t, il=il) for norm, t in pairs)
        else:
            dt = cont(dt)
        dt = self.dt(g, dt)
        x = reshape(x, 1, d_inner, *g.per_seq)
        all_states, n = g.inp_rs.mctx.get_s_l(il), hp.n_embd_s

        def run_scan(states: Tensor, ids: Tensor) -> Tensor:
            states = reshape(states, d_state, 1, d_inner, states.ne[1])
            return ssm_scan(states, x, dt, self.a, b, c, ids, n_snapshots(g))

        y = read_states(g, all_states, n, run_scan)
        store_states(g, all_states, n, y, x.n_elements, flat=True)
        return view(y, (d_inner, *g.per_seq), (d_inner, d_inner * g.per_seq[0]))


class ScanInputs(NamedTuple):
    """Inputs of a scan over T tokens of B sequences."""

    x: Tensor  # [head_dim, n_head, T, B]
    dt: Tensor  # [n_head, T, B]
    b: Tensor  # [d_state, n_group, T, B]
    c: Tensor  # [d_state, n_group, T, B]


class Mamba2Mixer(_Mamba):
    """Heads that decay as one, groups that share inputs and outputs (build_mamba2_layer).
    ssm_dt_rank is the number of heads."""

    parts_keep = StateSpec

    def __init__(
        self, w: Weights, hp: SSMHParams, *, conv_bias: Bias = "needed", normed: bool = True
    ) -> None:
        """Declare the weights; `normed`: False if the result may have no norm."""
        super().__init__(w, hp, conv_bias)
        n_head, n_group = hp.ssm_dt_rank, hp.ssm_n_group
        sections = (hp.ssm_d_inner, *hp.conv_sections, n_head)  # z, x, b, c, dt
        self.in_proj = w.linear("ssm_in", hp.n_embd, sum(sections), sections=sections)
        self.dt = w.tensor("ssm_dt.bias", n_head)
        self.a = w.tensor("ssm_a", 1, n_head)
        self.d = w.tensor("ssm_d", 1, n_head)
        norm = w.norm if normed else w.optional_norm
        self.norm = norm("ssm_norm", hp.ssm_d_inner // n_group, n_group)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape."""
        hp, d_inner, n_head = self.hp, self.hp.ssm_d_inner, self.hp.ssm_dt_rank
        states = self._conv_states(g, il)
        projected = self._project(g, cur)  # z, x, b, c, dt
        z = heads(projected, d_inner // n_head, n_head, *g.per_seq)
        x = view(projected, (hp.conv_dim, *g.per_seq), offset=d_inner)
        dt = view(projected, (n_head, *g.per_seq), offset=d_inner + hp.conv_dim)
        r_l = g.inp_rs.mctx.get_r_l(il)
        xbc = self._convolve(g, states, x, lambda slot: cells_2d(g, r_l, hp.n_embd_r, slot))
        y = self._scan(g, self._split(g, xbc, dt), il)
        y = swiglu_split(cont(z), g.cb(y, "mamba2_y_add_d", il))
        if self.norm is not None:
            y = reshape(y, d_inner // hp.ssm_n_group, hp.ssm_n_group, *g.per_seq)
            y = self.norm(g, y, il=il)
        cur = self.out(g, reshape(y, d_inner, g.n_tokens))
        return g.cb(cur, "mamba_out", il)

    def _project(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Project to the inputs of all parts: [n_embd, n_tokens] -> [d_in, T, B]."""
        cur = self.in_proj(g, cur)
        return reshape(cur, cur.ne[0], *g.per_seq)

    def _split(self, g: GraphBuilder, xbc: Tensor, dt: Tensor) -> ScanInputs:
        """Split xbc [conv_dim, T, B] and dt [n_head, T, B] into the scan's inputs."""
        hp, d_inner, n_head = self.hp, self.hp.ssm_d_inner, self.hp.ssm_dt_rank
        d_state, n_group = hp.ssm_d_state, hp.ssm_n_group
        x = heads(xbc, d_inner // n_head, n_head, *g.per_seq)
        b = heads(xbc, d_state, n_group, *g.per_seq, offset=d_inner)
        c = heads(xbc, d_state, n_group, *g.per_seq, offset=d_inner + n_group * d_state)
        return ScanInputs(x, add(cont(dt), self.dt), b, c)

    def _scan(self, g: GraphBuilder, s: ScanInputs, il: int) -> Tensor:
        """Scan and store the new states. -> [head_dim, n_head, T, B]"""
        hp, (head_dim, n_head, n_seq_tokens) = self.hp, s.x.ne[:3]
        all_states, n = g.inp_rs.mctx.get_s_l(il), hp.n_embd_s

        def run_scan(states: Tensor, ids: Tensor) -> Tensor:
            states = reshape(states, hp.ssm_d_state, head_dim, n_head, states.ne[1])
            return ssm_scan(states, s.x, s.dt, self.a, s.b, s.c, ids, n_snapshots(g))

        result = read_states(g, all_states, n, run_scan)
        store_states(g, all_states, n, result, s.x.n_elements)
        row = head_dim * n_head
        y = view(result, s.x.ne, (head_dim, row, row * n_seq_tokens))
        return add(y, mul(s.x, self.d))

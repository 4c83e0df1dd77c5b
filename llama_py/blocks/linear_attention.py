"""A layer of linear attention: short convolution, gated delta rule, gated norm (the part that
models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp have in common: build_layer_attn_linear)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ggml_py.ops import (
    add,
    concat,
    fill,
    mul,
    repeat_4d,
    reshape,
    sigmoid,
    silu,
    softplus,
    ssm_conv,
    transpose,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.delta_net import (
    DELTA_NET,
    Delta,
    build_conv_state,
    build_delta_net,
    build_recurrent_attn,
    l2_norm,
)
from llama_py.blocks.functions import heads
from llama_py.blocks.state import read_states
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.base import new_input
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import StateSpec
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self


class DeltaNetHParams(HParams):
    """Sizes of a gated delta net, under ssm names.

    ssm_d_state  head size S; ssm_dt_rank  value heads H; ssm_n_group  key heads H_k
    interleaved  value head h uses key head h mod H_k; else h / (H / H_k)
    """

    interleaved: ClassVar[bool] = True

    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    ssm_d_conv: int = uint("ssm.conv_kernel", least=1)
    ssm_d_inner: int = uint("ssm.inner_size", least=1)
    ssm_d_state: int = uint("ssm.state_size", least=1)
    ssm_dt_rank: int = uint("ssm.time_step_rank", least=1)
    ssm_n_group: int = uint("ssm.group_count", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.ssm_d_inner != self.ssm_d_state * self.ssm_dt_rank:
            raise keys.error("ssm.inner_size", "must be state_size * time_step_rank")
        if self.ssm_dt_rank % self.ssm_n_group:
            raise keys.error("ssm.group_count", f"must divide time_step_rank = {self.ssm_dt_rank}")
        self._derive()
        self.l2_eps = self.delta_net_eps()

    def _derive(self) -> None:
        self.key_dim = self.ssm_d_state * self.ssm_n_group
        self.value_dim = self.ssm_d_inner
        self.conv_dim = 2 * self.key_dim + self.value_dim
        self.n_embd_r = (self.ssm_d_conv - 1) * self.conv_dim
        self.n_embd_s = self.ssm_d_state * self.ssm_d_inner

    @property
    def head_sections(self) -> tuple[int, ...]:
        """Value heads, in the runs that each have one head of every key head, or all of one."""
        n_each = self.ssm_dt_rank // self.ssm_n_group
        return (self.ssm_n_group,) * n_each if self.interleaved else (self.ssm_dt_rank,)

    @property
    def value_sections(self) -> tuple[int, ...]:
        """Dimensions of the sections in `head_sections`."""
        return tuple(n * self.ssm_d_state for n in self.head_sections)

    @property
    def conv_sections(self) -> tuple[int, ...]:
        """Channels of queries, of keys, and of the runs of values."""
        return (self.key_dim, self.key_dim, *self.value_sections)

    @property
    def state_sections(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        steps, size = self.ssm_d_conv - 1, self.ssm_d_state
        conv = tuple(n * steps for n in self.conv_sections)
        return conv, tuple(n * size for n in self.value_sections)

    def shared(self, share: Shard) -> Self:
        """Return the share of key heads, each with its value heads."""
        hp = super().shared(share)
        n_each = self.ssm_dt_rank // self.ssm_n_group
        width = self.ssm_d_state * (1 if self.interleaved else n_each)
        hp.ssm_n_group = share.count_own(self.ssm_n_group, width, "ssm_out")
        hp.ssm_dt_rank = hp.ssm_n_group * n_each
        hp.ssm_d_inner = hp.ssm_dt_rank * self.ssm_d_state
        hp._derive()
        return hp


class DeltaNetInputs(NamedTuple):
    """Inputs of a delta net; T = n_seq_tokens, B = n_seqs.

    In slots B is 1: qkv [conv_dim, T, 1], beta before its sigmoid [H, 1, T], alpha [H, T].
    """

    qkv: Tensor  # [conv_dim, T, B]
    z: Tensor  # [value_dim, n_tokens]
    beta: Tensor  # [1, H, T, B]
    alpha: Tensor  # [H, T, B] before its bias


class DeltaProjections:
    """Matrices before and after a delta net. A model with other matrices overrides the methods."""

    def __init__(self, w: Weights, hp: DeltaNetHParams) -> None:
        self.hp = hp
        self.declare(w)

    def declare(self, w: Weights) -> None:
        """Declare the weights of all projections."""
        hp, n_embd, n_head = self.hp, self.hp.n_embd, self.hp.ssm_dt_rank
        values, of_head = hp.value_sections, hp.head_sections
        self.in_qkv = w.linear("attn_qkv", n_embd, hp.conv_dim, sections=hp.conv_sections)
        self.in_z = w.linear("attn_gate", n_embd, hp.value_dim, sections=values)
        self.in_beta = w.linear("ssm_beta", n_embd, n_head, sections=of_head)
        self.in_alpha = w.linear("ssm_alpha", n_embd, n_head, sections=of_head)
        self.out = w.linear("ssm_out", hp.value_dim, n_embd, sections=values)

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> DeltaNetInputs:
        """Compute the inputs of the delta net from [n_embd, n_tokens]."""
        return DeltaNetInputs(*self.qkvz(g, cur, il), *self.gates(g, cur, il))

    def qkvz(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return the convolution's input [conv_dim, T, B] and z [value_dim, n_tokens]."""
        qkv = self.in_qkv(g, cur)
        qkv = g.cb(reshape(qkv, qkv.ne[0], *g.per_seq), "linear_attn_qkv_mixed", il)
        return qkv, g.cb(self.in_z(g, cur), "z", il)

    def gates(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return beta [1, H, T, B] and alpha [H, T, B]."""
        n_head = self.hp.ssm_dt_rank
        beta = reshape(self.in_beta(g, cur), 1, n_head, *g.per_seq)
        beta = g.cb(sigmoid(g.cb(beta, "beta", il)), "beta_sigmoid", il)
        alpha = reshape(self.in_alpha(g, cur), n_head, *g.per_seq)
        return beta, g.cb(alpha, "alpha", il)

    def project_slot(self, g: GraphBuilder, cur: Tensor, il: int) -> DeltaNetInputs:
        """Return the inputs of a delta net with its state in a slot."""
        return DeltaNetInputs(*self.slot_qkvz(g, cur, il), *self.slot_gates(g, cur, il))

    def slot_qkvz(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return convolution input [conv_dim, T, 1] and z [value_dim, T], for a slot."""
        qkv = g.expand(g.cb(self.in_qkv(g, cur), "qkv_mixed", il))
        z = g.expand(g.cb(self.in_z(g, cur), "z", il))
        return g.cb(reshape(qkv, qkv.ne[0], g.n_tokens, 1), "linear_attn_qkv_mixed", il), z

    def slot_gates(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return beta before its sigmoid [H, 1, T] and alpha [H, T], for a state in a slot."""
        n_head = self.hp.ssm_dt_rank
        beta = reshape(g.cb(self.in_beta(g, cur), "beta", il), n_head, 1, g.n_tokens)
        alpha = g.cb(self.in_alpha(g, cur), "alpha", il)
        return beta, reshape(alpha, n_head, g.n_tokens)


class LinearAttention:
    """[n_embd, n_tokens] -> the same. The state of each sequence is in a cell of the memory."""

    parts_keep: ClassVar[type[StateSpec] | None] = StateSpec

    def __init__(
        self,
        w: Weights,
        hp: DeltaNetHParams,
        projections: type[DeltaProjections] = DeltaProjections,
    ) -> None:
        self.hp = hp
        self.projections = projections(w, hp)
        self.conv1d = w.tensor(
            "ssm_conv1d.weight", hp.ssm_d_conv, hp.conv_dim, sections=hp.conv_sections
        )
        self.dt = w.tensor("ssm_dt.bias", hp.ssm_dt_rank, sections=hp.head_sections)
        self.a = w.tensor("ssm_a", hp.ssm_dt_rank, sections=hp.head_sections)
        self.norm = w.norm("ssm_norm", hp.ssm_d_state)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        hp = self.hp
        size, n_head = hp.ssm_d_state, hp.ssm_dt_rank
        x = self.projections.project(g, cur, il)
        gate = mul(g.cb(softplus(add(x.alpha, self.dt)), "a_softplus", il), self.a)
        gate = reshape(g.cb(gate, "gate", il), 1, n_head, *g.per_seq)  # log of the decay
        conv_input = self.with_last_inputs(g, x.qkv, il)
        state = g.cb(self.first_state(g, il), "state_predelta", il)
        conv = g.cb(ssm_conv(conv_input, self.conv1d), "conv_output_raw", il)
        conv = g.cb(silu(conv), "conv_output_silu", il)  # [conv_dim, T, B]
        q, k, v = self.split_qkv(g, conv, il)
        output = self.run_rule(g, Delta(q, k, v, gate, x.beta), state, il)
        g.cb(output, "attn_output", il)
        z = reshape(x.z, size, n_head, *g.per_seq)
        output = self.apply_gate(g, output, z, il)
        output = g.cb(reshape(output, hp.value_dim, *g.per_seq), "final_output", il)
        cur = g.cb(self.projections.out(g, output), "linear_attn_out", il)
        return reshape(cur, hp.n_embd, g.n_tokens)

    def with_last_inputs(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Return the convolution's input: x [conv_dim, T, B] after the inputs before it.
        -> [d_conv - 1 + T, conv_dim, B]"""
        return self.conv_input(g, g.inp_rs.mctx.get_r_l(il), x, il)

    def first_state(self, g: GraphBuilder, il: int) -> Tensor:
        """Return the state that each sequence starts from, [S, S, H, B]."""
        size, n_head = self.hp.ssm_d_state, self.hp.ssm_dt_rank
        state = read_states(g, g.inp_rs.mctx.get_s_l(il), self.hp.n_embd_s)
        return reshape(state, size, size, n_head, g.ubatch.n_seqs)

    def run_rule(self, g: GraphBuilder, x: Delta, state: Tensor, il: int) -> Tensor:
        """Run the delta net from a state, and store the new one. -> [S, H, T, B]"""
        return build_recurrent_attn(g, g.inp_rs.mctx.get_s_l(il), x, state, il)

    def conv_input(self, g: GraphBuilder, states: Tensor, x: Tensor, il: int) -> Tensor:
        """Prepend earlier inputs of the convolution and store the new last inputs.
        x [conv_dim, T, B] -> [d_conv - 1 + T, conv_dim, B]"""
        return build_conv_state(g, states, x, self.hp.ssm_d_conv, il)

    def apply_gate(self, g: GraphBuilder, output: Tensor, z: Tensor, il: int) -> Tensor:
        """Normalize output [S, H, T, B] and multiply it by silu(z)."""
        return mul(self.norm(g, output, il=il), silu(z))

    def split_qkv(self, g: GraphBuilder, conv: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """Split [conv_dim, T, B] into normed Q and K [S, H_k, T, B] and V [S, H, T, B]."""
        hp, size, n_group = self.hp, self.hp.ssm_d_state, self.hp.ssm_n_group
        q = g.cb(heads(conv, size, n_group, *g.per_seq), "q_conv", il)
        k = g.cb(heads(conv, size, n_group, *g.per_seq, offset=hp.key_dim), "k_conv", il)
        v = heads(conv, size, hp.ssm_dt_rank, *g.per_seq, offset=2 * hp.key_dim)
        v = g.cb(v, "v_conv", il)
        q, k = (self.repeat_heads(g, l2_norm(g, t)) for t in (q, k))
        g.cb(q, "q_conv_predelta", il)
        g.cb(k, "k_conv_predelta", il)
        return q, k, g.cb(v, "v_conv_predelta", il)

    def repeat_heads(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Repeat key heads to the number of value heads. [S, H_k, T, B] -> [S, H, T, B]

        The fused op repeats interleaved heads itself.
        """
        n_head, (size, n_group, n_seq_tokens, n_seqs) = self.hp.ssm_dt_rank, x.ne
        if n_group == n_head or (self.hp.interleaved and g.form(DELTA_NET) == "fused"):
            return x
        if self.hp.interleaved:
            return repeat_4d(x, size, n_head, n_seq_tokens, n_seqs)
        n_tokens = n_seq_tokens * n_seqs
        x = reshape(x, size, 1, n_group, n_tokens)
        x = repeat_4d(x, size, n_head // n_group, n_group, n_tokens)
        return reshape(x, size, n_head, n_seq_tokens, n_seqs)


class StatelessLinearAttention(LinearAttention):
    """Linear attention within a ubatch: states are zero before it, and not kept."""

    parts_keep = None

    def with_last_inputs(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        zeros = _zeros(self.hp.ssm_d_conv - 1, x.ne[0], x.ne[2])
        return concat(zeros, transpose(x), 0)

    def first_state(self, g: GraphBuilder, il: int) -> Tensor:
        size = self.hp.ssm_d_state
        return _zeros(size, size, self.hp.ssm_dt_rank, g.ubatch.n_seqs)

    def run_rule(self, g: GraphBuilder, x: Delta, state: Tensor, il: int) -> Tensor:
        return build_delta_net(g, x, state, il)[0]


def _zeros(*ne: int) -> Tensor:
    return fill(new_input("", F32, *ne), 0.0)

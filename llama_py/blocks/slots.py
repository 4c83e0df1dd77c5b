"""Linear attention over states in slots, one sequence after the other
(ik_llama.cpp llama-delta-net.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ggml_py.ops import (
    add,
    concat,
    concat_inplace,
    cont,
    cpy,
    delta_net,
    fused_mul_unary,
    l2_norm,
    mul,
    permute,
    reshape,
    scale,
    silu,
    softplus,
    ssm_conv_seq,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import dense, heads
from llama_py.blocks.linear_attention import LinearAttention
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.variants import Variant

SLOT_UPDATE = Variant(
    "slot_update",
    ("cpy", "concat"),
    "how rows of slots are written: inputs and state apart, or side by side",
    go_back=("concat",),
)


class SeqBuilder(GraphBuilder):
    """Graph builder for one sequence of a ubatch: sizes and slot are the sequence's; `ubatch` and
    all other inputs are the whole graph's."""

    def __init__(self, whole: GraphBuilder, number: int) -> None:
        self.__dict__.update(whole.__dict__)
        self.n_tokens = n = whole.per_seq[0]
        self.per_seq = n, 1
        self.inp_slots = mine = copy(whole.inp_slots)
        mine.starts = [mine.starts[number]]
        mine.seq = view(mine.seq, (1, n), offset=number * n)
        self._shared: dict[str, Any] = {}


def each_seq(
    g: GraphBuilder, cur: Tensor, make: Callable[[GraphBuilder, Tensor], Tensor]
) -> Tensor:
    """Apply `make` to each sequence of cur [n, n_tokens] and concatenate the results."""
    n, n_seqs = g.per_seq
    if n_seqs == 1:
        return make(g, cur)
    own = [view(cur, (cur.ne[0], n), offset=i * n * cur.ne[0]) for i in range(n_seqs)]
    made = (make(SeqBuilder(g, i), x) for i, x in enumerate(own))
    return reduce(lambda a, b: concat(a, b, 1), made)


@dataclass(slots=True)
class SlotAttention:
    """Linear attention with its state in a slot, with the weights of a block with states in cells.

    The tokens of `g` are of one sequence; T = n_tokens.
    """

    cells: LinearAttention

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        hp, w = self.cells.hp, self.cells
        x = w.projections.project_slot(g, cur, il)
        g.expand(g.cb(x.beta, "beta", il))
        alpha = g.expand(g.cb(x.alpha, "alpha", il))
        alpha = g.cb(add(alpha, w.dt), "alpha_biased", il)
        gate = g.cb(mul(g.cb(softplus(alpha), "a_softplus", il), w.a), "gate", il)
        output = self.recurrence(g, x.qkv, x.beta, gate, il)
        size, n_rows = output.ne[0], output.ne[1] * output.ne[2]
        output, z = reshape(output, size, n_rows), reshape(x.z, size, n_rows)
        output = w.norm(g, output, "attn_rms_norm", il)
        output = g.cb(fused_mul_unary(z, output, "silu"), "attn_out_norm", il)
        output = g.cb(reshape(output, hp.value_dim, g.n_tokens), "final_output", il)
        cur = g.cb(w.projections.out(g, output), "linear_attn_out", il)
        return reshape(cur, hp.n_embd, g.n_tokens)

    def recurrence(
        self, g: GraphBuilder, qkv: Tensor, beta: Tensor, gate: Tensor, il: int
    ) -> Tensor:
        """Convolve and apply the delta net, updating inputs and state in the slot. -> [S, H, T]"""
        hp, n_tokens = self.cells.hp, g.n_tokens
        size, n_head, width = hp.ssm_d_state, hp.ssm_dt_rank, hp.ssm_d_conv - 1
        row, old = self._row(g, il)
        conv = view(old, (hp.n_embd_r, 1))
        state = view(old, (hp.n_embd_s, 1), offset=hp.n_embd_r)
        conv = g.cb(reshape(conv, width, hp.conv_dim, 1), "conv_states", il)
        state = g.expand(g.cb(reshape(state, size, size, n_head), "state_in", il))
        conv_steps, state_steps = self._steps(g, il)
        raw = ssm_conv_seq(conv, qkv, self.cells.conv1d, g.inp_slots.seq, conv_steps)
        g.cb(raw, "conv_output_raw", il)
        x = silu(view(raw, (hp.conv_dim, n_tokens), (hp.conv_dim,)))
        q, k, v = self._split(g, g.expand(g.cb(x, "conv_output_silu", il)), il)
        state = g.cb(reshape(state, size, size * n_head, 1, 1), "state_fused", il)
        gate = g.cb(permute(g.cb(gate, "g_in", il), 2, 0, 3, 1), "g_fused", il)
        beta = g.cb(permute(g.cb(beta, "beta_in", il), 2, 0, 1, 3), "beta_fused", il)
        repeat = "tiles" if hp.interleaved else "groups"
        result = delta_net(q, k, v, gate, beta, state, state_steps, repeat)
        g.cb(result, "delta_net_fused_raw", il)
        ne = size, n_head, n_tokens, 1
        output = g.cb(view(result, ne, dense(ne)), "attn_output", il)
        state = view(result, (hp.n_embd_s,), offset=output.n_elements)
        state = g.cb(reshape(state, size, size, n_head), "new_state", il)
        conv = view(raw, (width, hp.conv_dim), (width + 1,), 1 + hp.conv_dim * n_tokens)
        self._update(g, row, g.cb(cont(conv), "new_conv_states_cont", il), state, il)
        return output

    def _row(self, g: GraphBuilder, il: int) -> tuple[Tensor, Tensor]:
        """Return the slot [n_embd_r + n_embd_s, 1] and the values that the sequence starts from."""
        s_l, ((slot, starts),) = g.inp_slots.mctx.get_s_l(il), g.inp_slots.starts
        row = view(view(s_l, s_l.ne[:2]), (s_l.ne[0], 1), offset=slot * s_l.ne[0])
        return row, g.cb(scale(row, 0.0), "state_reset", il) if starts else row

    def _steps(self, g: GraphBuilder, il: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the slot's checkpoints of inputs and states; None if the graph writes none."""
        if not 1 < g.n_tokens <= g.cparams.n_rs_seq + 1:
            return None, None
        slot, _ = g.inp_slots.starts[0]
        conv, state = (
            view(t, (t.ne[0],), offset=slot * t.ne[0]) for t in g.inp_slots.mctx.get_steps(il)
        )
        return conv, state

    def _split(self, g: GraphBuilder, x: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """Split [conv_dim, T] into normed queries and keys [S, T, H_k] and values [S, T, H]."""
        hp = self.cells.hp
        size, n_group = hp.ssm_d_state, hp.ssm_n_group
        q = g.cb(heads(x, size, n_group, *g.per_seq), "q_conv", il)
        k = g.cb(heads(x, size, n_group, *g.per_seq, offset=hp.key_dim), "k_conv", il)
        v = heads(x, size, hp.ssm_dt_rank, *g.per_seq, offset=2 * hp.key_dim)
        v = permute(g.cb(v, "v_in", il), 0, 2, 1, 3)
        q, k = (self._normalize(g, t) for t in (q, k))
        return g.cb(q, "q_fused", il), g.cb(k, "k_fused", il), g.cb(v, "v_fused", il)

    def _normalize(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Scale [S, H_k, T] to length one and permute it to [S, T, H_k]."""
        eps = g.hp.f_norm_rms_eps
        if g.n_tokens > 1:
            return l2_norm(permute(x, 0, 2, 1, 3), eps)
        return permute(l2_norm(x, eps), 0, 2, 1, 3)

    def _update(self, g: GraphBuilder, row: Tensor, conv: Tensor, state: Tensor, il: int) -> None:
        """Write the slot; write the state first, directly after its op."""
        n_r, n_s = self.cells.hp.n_embd_r, self.cells.hp.n_embd_s
        conv, state = reshape(conv, n_r, 1), reshape(state, n_s, 1)
        if g.form(SLOT_UPDATE) == "concat":
            g.expand(concat_inplace(conv, state, row, 0))
            return
        conv_dst, state_dst = view(row, (n_r, 1)), view(row, (n_s, 1), offset=n_r)
        g.expand(g.cb(cpy(state, state_dst), "ssm_state_cpy", il))
        g.expand(g.cb(cpy(conv, conv_dst), "conv_state_cpy", il))

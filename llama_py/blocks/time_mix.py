"""RWKV-6's time mix: a state with a decay per dimension (models/rwkv6-base.cpp; arXiv
2404.05892)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py.ops import (
    add,
    cont,
    exp,
    gated_linear_attn,
    mul,
    mul_mat,
    neg,
    norm,
    permute,
    repeat_4d,
    reshape,
    rwkv_wkv6,
    sigmoid,
    silu,
    sub,
    tanh,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.rwkv import GROUP_EPS, RwkvHParams
from llama_py.blocks.state import n_snapshots, read_states, store_states
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import StateSpec
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

MIXED = "wkvrg"  # inputs with separate mixtures: decay, key, value, receptance, gate


class TimeMixHParams(RwkvHParams):
    """Hyperparameters of RWKV-6 layers.

    time_mix_extra_dim, time_decay_extra_dim   ranks of token-dependent projections
    rescale_every_n_layers   period in layers for halving results; 0: never
    wkv_n_head_kv   heads of keys and values
    """

    time_mix_extra_dim: int = uint("time_mix_extra_dim", least=1)
    time_decay_extra_dim: int = uint("time_decay_extra_dim", least=1)
    rescale_every_n_layers: int = uint("rescale_every_n_layers", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.wkv_n_head_kv = self.wkv_n_head

    def shared(self, share: Shard) -> Self:
        """Return the share of heads; token-shift inputs are not split."""
        hp, n_kv = super().shared(share), self.wkv_n_head_kv
        each = self.wkv_n_head // n_kv
        hp.wkv_n_head_kv = share.count_own(n_kv, each * self.wkv_head_size, "time_mix_output")
        hp._of_heads(hp.wkv_n_head_kv * each)
        return hp


class TimeMix6:
    """The state's part of a layer of RWKV-6 (build_rwkv6_time_mix)."""

    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: TimeMixHParams) -> None:
        n, rank = hp.n_embd, hp.time_decay_extra_dim
        self.hp, self.size = hp, hp.wkv_head_size
        self.n_head, self.n_inner = hp.wkv_n_head, hp.wkv_n_inner
        self.w1 = w.tensor("time_mix_w1.weight", n, hp.time_mix_extra_dim * len(MIXED))
        self.w2 = w.tensor("time_mix_w2.weight", hp.time_mix_extra_dim, n, len(MIXED))
        self.lerp_x = w.tensor("time_mix_lerp_x.weight", n, 1, 1)
        self.fused: Tensor | None = None
        names = [f"time_mix_lerp_{part}.weight" for part in MIXED]
        if w.has("time_mix_lerp_fused.weight"):
            self.fused = w.tensor("time_mix_lerp_fused.weight", n, 1, 1, len(MIXED))
            w.skip(*names)
        else:
            self.lerps = [w.tensor(name, n, 1, 1) for name in names]
        self.decay = w.tensor("time_mix_decay.weight", self.n_inner)
        self.decay_w1 = w.tensor("time_mix_decay_w1.weight", n, rank)
        self.decay_w2 = w.tensor("time_mix_decay_w2.weight", rank, self.n_inner)
        self.declare_rule(w)
        self.output = w.linear("time_mix_output", self.n_inner, n, scaled=False)

    def declare_rule(self, w: Weights) -> None:
        n, n_inner = self.hp.n_embd, self.n_inner
        self.first = w.tensor("time_mix_first.weight", self.size, self.n_head)
        self.key, self.value, self.receptance, self.gate = (
            w.linear(f"time_mix_{part}", n, n_inner, scaled=False)
            for part in ("key", "value", "receptance", "gate")
        )
        self.ln, self.ln_b = (
            w.tensor(f"time_mix_ln.{part}", n_inner) for part in ("weight", "bias")
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """Apply the layer to cur [n_embd, T, B] with the preceding tokens `x_prev`. -> like cur"""
        n_embd, n_tokens = self.hp.n_embd, g.n_tokens
        sx = reshape(sub(x_prev, cur), n_embd, n_tokens)
        xw, xk, xv, xr, xg = self._mixtures(g, sx, reshape(cur, n_embd, n_tokens))
        r, k, v = self.receptance(g, xr), self.key(g, xk), self.value(g, xv)
        gate = self.gate(g, xg)
        k, v, r = (self.heads(x) for x in (k, v, r))
        cur = self.output(g, self.apply_gate(self.wkv(g, k, v, r, self._decays(g, xw), il), gate))
        return reshape(cur, n_embd, *g.per_seq)

    def heads(self, x: Tensor) -> Tensor:
        """Split x into heads: [n_inner, n_tokens] -> [S, H, n_tokens]."""
        return reshape(x, self.size, self.n_head, x.ne[1])

    def apply_gate(self, cur: Tensor, gate: Tensor) -> Tensor:
        """Normalize the rule's output [n_inner * n_tokens] and multiply it by silu(gate)."""
        return mul(self._normalize(cur), silu(gate))

    def _mixtures(self, g: GraphBuilder, sx: Tensor, cur: Tensor) -> list[Tensor]:
        """Mix each token with the one before it by token-dependent factors; sx is their difference.
        [n_embd, n_tokens] -> one per letter of MIXED"""
        n_embd, n_tokens = cur.ne[:2]
        extra, n = self.hp.time_mix_extra_dim, len(MIXED)
        x = add(mul(sx, self.lerp_x), cur)
        x = reshape(tanh(g.mm(self.w1, x)), extra, 1, n, n_tokens)
        x = cont(permute(x, 0, 1, 3, 2))
        x = mul_mat(reshape(self.w2, extra, n_embd, 1, n), x)  # [n_embd, 1, n_tokens, n]
        if self.fused is not None:
            sx, cur = (reshape(t, n_embd, 1, n_tokens) for t in (sx, cur))
            x = add(mul(add(x, self.fused), sx), cur)
        parts = [view(x, (n_embd, n_tokens), (n_embd,), i * n_embd * n_tokens) for i in range(n)]
        if self.fused is not None:
            return parts
        pairs = zip(parts, self.lerps, strict=True)
        return [add(mul(add(part, lerp), sx), cur) for part, lerp in pairs]

    def _decays(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the decays [S, H, n_tokens], between 0 and 1."""
        w = g.mm(self.decay_w2, tanh(g.mm(self.decay_w1, x)))
        w = exp(neg(exp(add(w, self.decay))))
        return self.heads(w)

    def wkv(self, g: GraphBuilder, k: Tensor, v: Tensor, r: Tensor, w: Tensor, il: int) -> Tensor:
        """Apply the rule and store states: [S, H, n_tokens] each -> [n_inner * n_tokens]."""
        states, n = g.inp_rs.mctx.get_s_l(il), self.hp.n_embd_s
        result = self.rule(k, v, r, w, read_states(g, states, n), n_snapshots(g))
        output = view(result, (k.n_elements,))
        store_states(g, states, n, result, k.n_elements, flat=True)
        return output

    def rule(
        self, k: Tensor, v: Tensor, r: Tensor, w: Tensor, state: Tensor, n_states: int
    ) -> Tensor:
        """Return outputs [S, H, n_tokens] followed by the new states."""
        return rwkv_wkv6(k, v, r, self.first, w, state, n_states)

    def _normalize(self, cur: Tensor) -> Tensor:
        """Normalize each head: [n_inner * n_tokens] -> [n_inner, n_tokens]."""
        n_tokens = cur.ne[0] // self.n_inner
        cur = norm(reshape(cur, self.size, self.n_head, n_tokens), GROUP_EPS)
        cur = reshape(cur, self.n_inner, n_tokens)
        return add(mul(cur, self.ln), self.ln_b)


class GatedTimeMix(TimeMix6):
    """Gated linear attention instead, without norms; several heads may have the same keys and
    values."""

    def declare_rule(self, w: Weights) -> None:
        n, n_inner, n_kv = self.hp.n_embd, self.n_inner, self.hp.wkv_n_head_kv * self.size
        sizes = {"key": n_kv, "value": n_kv, "receptance": n_inner}
        self.key, self.value, self.receptance = (
            w.linear(f"time_mix_{part}", n, n_out, bias=True, scaled=False)
            for part, n_out in sizes.items()
        )
        self.gate = w.linear("time_mix_gate", n, n_inner, scaled=False)

    def heads(self, x: Tensor) -> Tensor:
        n_kv, n_tokens = x.ne[0] // self.size, x.ne[1]
        if n_kv < self.n_head:
            x = reshape(x, self.size, 1, n_kv, n_tokens)
            x = repeat_4d(x, self.size, self.n_head // n_kv, n_kv, n_tokens)
        return reshape(x, self.size, self.n_head, n_tokens)

    def apply_gate(self, cur: Tensor, gate: Tensor) -> Tensor:
        return mul(reshape(cur, *gate.ne[:2]), sigmoid(gate))

    def rule(
        self, k: Tensor, v: Tensor, r: Tensor, w: Tensor, state: Tensor, n_states: int
    ) -> Tensor:
        k = sub(k, mul(k, w))
        return gated_linear_attn(k, v, r, w, state, self.size**-0.5, n_states)

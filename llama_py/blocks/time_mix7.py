"""RWKV-7's time mix: a state that each token also subtracts from (models/rwkv7-base.cpp;
arXiv 2503.14456)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops import (
    add,
    exp,
    l2_norm,
    mul,
    neg,
    norm,
    repeat_4d,
    reshape,
    rwkv_wkv7,
    scale,
    sigmoid,
    sub,
    sum_rows,
    tanh,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.rwkv import GROUP_EPS, RwkvHParams
from llama_py.blocks.state import n_snapshots, read_states, store_states
from llama_py.gguf.keys import uint
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights

Act = Callable[[Tensor], Tensor]

LOG_DECAY = -0.606531  # the lowest: of e^(-1/2)


class TimeMix7HParams(RwkvHParams):
    """Hyperparameters of RWKV-7: ranks of decay, in-context learning rate, first-layer value mix
    and gate."""

    n_lora_decay: int = uint("attention.decay_lora_rank", least=1)
    n_lora_iclr: int = uint("attention.iclr_lora_rank", least=1)
    n_lora_value_res_mix: int = uint("attention.value_residual_mix_lora_rank", least=1)
    n_lora_gate: int = uint("attention.gate_lora_rank", 0)


class LowRank:
    """Low-rank projection of each token: second act(first x) + bias."""

    def __init__(
        self,
        w: Weights,
        letter: str,
        n: int,
        rank: int,
        act: Act | None = None,
        *,
        bias: bool = True,
    ) -> None:
        self.act = act
        self.first = w.tensor(f"time_mix_{letter}1.weight", n, rank)
        self.second = w.tensor(f"time_mix_{letter}2.weight", rank, n)
        self.bias = w.tensor(f"time_mix_{letter}0.weight", n) if bias else None

    def __call__(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Apply the projection: [n_embd, n_tokens] -> same shape."""
        x = g.mm(self.first, x)
        x = g.mm(self.second, x if self.act is None else self.act(x))
        return x if self.bias is None else add(x, self.bias)


class TimeMix7:
    """The state's part of a layer (build_rwkv7_time_mix). Later layers add the first layer's
    values, so devices cannot share single layers: each remains whole."""

    def __init__(self, w: Weights, hp: TimeMix7HParams, *, optional: bool = False) -> None:
        """Declare the weights; `optional`: the gate and the norm of heads may be missing."""
        n, self.hp, self.size = hp.n_embd, hp, hp.wkv_head_size
        self.decay = LowRank(w, "w", n, hp.n_lora_decay, tanh)
        self.rate = LowRank(w, "a", n, hp.n_lora_iclr)
        self.residual = self.gate = self.ln = self.ln_b = None
        if w.il > 0:
            self.residual = LowRank(w, "v", n, hp.n_lora_value_res_mix)
        else:
            w.skip(*(f"time_mix_v{i}.weight" for i in range(3)))
        if not optional or w.has("time_mix_g1.weight"):
            self.gate = LowRank(w, "g", n, hp.n_lora_gate, sigmoid, bias=False)
        self.n_mixed = 5 if self.gate is None else 6  # receptance, decay, key, value, rate, gate
        self.lerp = w.tensor("time_mix_lerp_fused.weight", n, 1, 1, self.n_mixed)
        self.k_k, self.k_a, self.r_k = (
            w.tensor(f"time_mix_{part}.weight", n) for part in ("k_k", "k_a", "r_k")
        )
        self.key, self.value, self.receptance, self.output = (
            w.linear(f"time_mix_{part}", n, n, scaled=False)
            for part in ("key", "value", "receptance", "output")
        )
        if not optional or w.has("time_mix_ln.weight"):
            self.ln, self.ln_b = (w.tensor(f"time_mix_ln.{x}", n) for x in ("weight", "bias"))

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """Apply the layer to cur [n_embd, T, B] with the preceding tokens `x_prev`. -> like cur"""
        xr, xw, xk, xv, xa, *xg = self._mixtures(g, cur, x_prev)
        r, k = self.receptance(g, xr), self.key(g, xk)
        w = exp(scale(sigmoid(self.decay(g, xw)), LOG_DECAY))
        v = self._values(g, xv)
        a = sigmoid(self.rate(g, xa))
        removed = l2_norm(self._heads(mul(k, self.k_k)), 1e-12)
        ka = mul(k, self.k_a)
        k = add(k, sub(mul(a, ka), ka))
        r, w, k, v, a = (self._heads(x) for x in (r, w, k, v, a))
        cur = self._normalize(self._wkv(g, r, w, k, v, neg(removed), mul(removed, a), il))
        weights = sum_rows(mul(mul(k, r), reshape(self.r_k, self.size, k.ne[1])))
        cur = add(cur, reshape(mul(v, weights), *cur.ne[:2]))
        if self.gate is not None:
            cur = mul(cur, self.gate(g, *xg))
        return reshape(self.output(g, cur), self.hp.n_embd, *g.per_seq)

    def _heads(self, x: Tensor) -> Tensor:
        """Split x into heads: [n_embd, n_tokens] -> [S, H, n_tokens]."""
        return reshape(x, self.size, x.ne[0] // self.size, x.ne[1])

    def _mixtures(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor) -> list[Tensor]:
        """Mix each token with its predecessor: [n_embd, T, B] -> n_mixed of [n_embd, n_tokens]."""
        n, n_mixed, n_tokens = self.hp.n_embd, self.n_mixed, g.n_tokens
        sx = repeat_4d(sub(x_prev, cur), n, *g.per_seq, n_mixed)
        x = add(mul(sx, self.lerp), cur)
        return [view(x, (n, n_tokens), (n,), i * n * n_tokens) for i in range(n_mixed)]

    def _values(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Interpolate between the first layer's values and this layer's, by token."""
        v = self.value(g, x)
        first: Tensor = g.shared("first layer's values", lambda: v)
        if self.residual is None:
            return v
        return add(v, mul(sub(first, v), sigmoid(self.residual(g, x))))

    def _wkv(
        self,
        g: GraphBuilder,
        r: Tensor,
        w: Tensor,
        k: Tensor,
        v: Tensor,
        a: Tensor,
        b: Tensor,
        il: int,
    ) -> Tensor:
        """Apply the rule and store the new states: [S, H, n_tokens] each -> [n_embd * n_tokens]."""
        states, n = g.inp_rs.mctx.get_s_l(il), self.hp.n_embd_s
        state = read_states(g, states, n)
        result = rwkv_wkv7(r, w, k, v, a, b, state, n_snapshots(g))
        output = view(result, (k.n_elements,))
        store_states(g, states, n, result, k.n_elements, flat=True)
        return output

    def _normalize(self, cur: Tensor) -> Tensor:
        """Normalize heads if the model has norms: [n_embd * n_tokens] -> [n_embd, n_tokens]."""
        n, size = self.hp.n_embd, self.size
        n_tokens = cur.n_elements // n
        if self.ln is None or self.ln_b is None:
            return reshape(cur, n, n_tokens)
        cur = norm(reshape(cur, size, n // size, n_tokens), GROUP_EPS)
        return add(mul(reshape(cur, n, n_tokens), self.ln), self.ln_b)

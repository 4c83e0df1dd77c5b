"""RWKV: tokens mixed with the one before them, and a state that decays channel by channel
(models/rwkv6-base.cpp; arXiv 2404.05892)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py.ops import (
    add,
    concat,
    cont,
    cpy,
    exp,
    mul,
    mul_mat,
    neg,
    norm,
    permute,
    relu,
    reshape,
    rwkv_wkv6,
    sigmoid,
    silu,
    sqr,
    sub,
    tanh,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import tokens
from llama_py.blocks.state import cells_1d, n_snapshots, read_states, slots, store_states
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import EPS, HParams
from llama_py.keys import Keys, number, uint
from llama_py.memory.kept import State
from llama_py.share import Share
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

GROUP_EPS = 64e-5  # of the norm of each head's result
MIXED = "wkvrg"  # what has a mixture of its own: decay, key, value, receptance, gate


class RwkvHParams(HParams):
    """wkv_head_size, wkv_n_head, wkv_n_inner   channels of a head, heads, channels of all heads
    time_mix_extra_dim, time_decay_extra_dim   ranks of what depends on the token
    rescale_every_n_layers   results are halved every so many layers; 0: never
    token_shift_count  how many inputs of the token before are kept: of time mix and channel mix
    """

    f_norm_eps: float = number(EPS, 0.0, least=0)
    wkv_head_size: int = uint("wkv.head_size", least=1)
    time_mix_extra_dim: int = uint("time_mix_extra_dim", least=1)
    time_decay_extra_dim: int = uint("time_decay_extra_dim", least=1)
    rescale_every_n_layers: int = uint("rescale_every_n_layers", 0)
    token_shift_count: int = uint("token_shift_count", 2, least=2, most=2)

    def load(self, keys: Keys) -> None:
        if self.n_embd % self.wkv_head_size:
            raise keys.error("wkv.head_size", f"it must divide embedding_length = {self.n_embd}")
        self.n_embd_r = 2 * self.n_embd
        self._of_heads(self.n_embd // self.wkv_head_size)

    def _of_heads(self, n: int) -> None:
        self.wkv_n_head, self.wkv_n_inner = n, n * self.wkv_head_size
        self.n_embd_s = self.wkv_n_inner * self.wkv_head_size

    def shared(self, share: Share) -> Self:
        """Heads of the time mix, hidden channels of the channel mix; the inputs of the token before
        stay together."""
        hp = super().shared(share)
        hp._of_heads(share.of(self.wkv_n_head, self.wkv_head_size, "time_mix_output"))
        hp.n_ff = tuple(
            share.of(n, 1, "channel_mix_value", il=il) for il, n in enumerate(self.n_ff)
        )
        return hp

    def is_recr(self, il: int) -> bool:
        return True


def load_shift(g: GraphBuilder, il: int) -> tuple[Tensor, Tensor]:
    """Both inputs of the token before each sequence's first (build_rwkv_token_shift_load).
    -> twice [n_embd, 1, n_seqs]"""
    n_embd, states = g.hp.n_embd, g.inp_rs.mctx.get_r_l(il)
    shift = reshape(read_states(g, states, 2 * n_embd), n_embd, 2, g.ubatch.n_seqs)
    return tokens(shift, 0, 1), tokens(shift, 1, 1)


def store_shift(g: GraphBuilder, x: Tensor, x_2: Tensor, il: int) -> None:
    """Keep the last token of both inputs [n_embd, T, B] (build_rwkv_token_shift_store), and those
    that may be gone back to."""
    states = g.inp_rs.mctx.get_r_l(il)
    for slot in slots(g):
        at = x.ne[1] - 1 - slot
        last = concat(tokens(x, at, 1), tokens(x_2, at, 1), 1)
        cells = cells_1d(g, states, 2 * g.hp.n_embd, slot)
        g.expand(cpy(view(last, (last.n_elements,)), cells))


def shifted(x: Tensor, before: Tensor) -> Tensor:
    """The token before each. x [n_embd, T, B], before [n_embd, 1, B] the first's -> like x"""
    return concat(before, tokens(x, 0, x.ne[1] - 1), 1)


class TimeMix6:
    """The state's part of a layer of RWKV-6 (build_rwkv6_time_mix)."""

    parts_keep = State

    def __init__(self, w: Weights, hp: RwkvHParams) -> None:
        n, size, rank = hp.n_embd, hp.wkv_head_size, hp.time_decay_extra_dim
        self.hp, self.size = hp, size
        self.n_head, self.n_inner = n_head, n_inner = hp.wkv_n_head, hp.wkv_n_inner
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
        self.first = w.tensor("time_mix_first.weight", size, n_head)
        self.decay = w.tensor("time_mix_decay.weight", n_inner)
        self.decay_w1 = w.tensor("time_mix_decay_w1.weight", n, rank)
        self.decay_w2 = w.tensor("time_mix_decay_w2.weight", rank, n_inner)
        self.key, self.value, self.receptance, self.gate = (
            w.tensor(f"time_mix_{part}.weight", n, n_inner)
            for part in ("key", "value", "receptance", "gate")
        )
        self.output = w.tensor("time_mix_output.weight", n_inner, n)
        self.ln, self.ln_b = (
            w.tensor(f"time_mix_ln.{part}", n_inner) for part in ("weight", "bias")
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """cur [n_embd, T, B], x_prev the tokens before -> the same"""
        n_embd, n_tokens = self.hp.n_embd, g.n_tokens
        sx = reshape(sub(x_prev, cur), n_embd, n_tokens)
        xw, xk, xv, xr, xg = self._mixtures(g, sx, reshape(cur, n_embd, n_tokens))
        r, k, v = g.mm(self.receptance, xr), g.mm(self.key, xk), g.mm(self.value, xv)
        gate = silu(g.mm(self.gate, xg))
        k, v, r = (reshape(x, self.size, self.n_head, n_tokens) for x in (k, v, r))
        cur = self._normed(self._wkv(g, k, v, r, self._decays(g, xw), il))
        cur = g.mm(self.output, mul(cur, gate))
        return reshape(cur, n_embd, *g.per_seq)

    def _mixtures(self, g: GraphBuilder, sx: Tensor, cur: Tensor) -> list[Tensor]:
        """Of each token with the one before it, in parts that depend on the token; sx is their
        difference. [n_embd, n_tokens] -> as often as MIXED has letters"""
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
        """-> [S, H, n_tokens], from 0 to 1"""
        w = g.mm(self.decay_w2, tanh(g.mm(self.decay_w1, x)))
        w = exp(neg(exp(add(w, self.decay))))
        return reshape(w, self.size, self.n_head, x.ne[1])

    def _wkv(self, g: GraphBuilder, k: Tensor, v: Tensor, r: Tensor, w: Tensor, il: int) -> Tensor:
        """The rule; the new states are stored. each [S, H, n_tokens] -> [n_inner * n_tokens]"""
        states, n = g.inp_rs.mctx.get_s_l(il), self.hp.n_embd_s
        state = read_states(g, states, n)
        result = rwkv_wkv6(k, v, r, self.first, w, state, n_snapshots(g))
        output = view(result, (k.n_elements,))
        store_states(g, states, n, result, k.n_elements, flat=True)
        return output

    def _normed(self, cur: Tensor) -> Tensor:
        """Head by head. [n_inner * n_tokens] -> [n_inner, n_tokens]"""
        n_tokens = cur.ne[0] // self.n_inner
        cur = norm(reshape(cur, self.size, self.n_head, n_tokens), GROUP_EPS)
        cur = reshape(cur, self.n_inner, n_tokens)
        return add(mul(cur, self.ln), self.ln_b)


class ChannelMix6:
    """A feed-forward of mixtures of each token with the one before it (build_rwkv6_channel_mix)."""

    parts_keep = None

    def __init__(self, w: Weights, n_embd: int, n_ff: int) -> None:
        self.lerp_k = w.tensor("channel_mix_lerp_k.weight", n_embd, 1, 1)
        self.lerp_r = w.tensor("channel_mix_lerp_r.weight", n_embd, 1, 1)
        self.key = w.tensor("channel_mix_key.weight", n_embd, n_ff)
        self.value = w.tensor("channel_mix_value.weight", n_ff, n_embd)
        self.receptance = w.tensor("channel_mix_receptance.weight", n_embd, n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """cur [n_embd, n], x_prev the tokens before -> the same"""
        sx = sub(x_prev, cur)
        xk = add(mul(sx, self.lerp_k), cur)
        xr = add(mul(sx, self.lerp_r), cur)
        r = sigmoid(g.mm(self.receptance, xr))
        k = sqr(relu(g.mm(self.key, xk)))
        return mul(r, g.mm(self.value, k))

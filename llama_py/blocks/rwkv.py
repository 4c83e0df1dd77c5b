"""RWKV: tokens mixed with the preceding one, and a feed-forward of such mixtures
(models/rwkv6-base.cpp, rwkv7-base.cpp; llama-graph.cpp:build_rwkv_token_shift_load)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ggml_py._moved import former_names
from ggml_py.ops import add, concat, cpy, mul, relu, reshape, sigmoid, sqr, sub, view
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import tokens
from llama_py.blocks.state import cells_1d, read_states, slots
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import EPS, RMS_EPS, HParams
from llama_py.hparams.shard import Shard
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

GROUP_EPS = 64e-5  # epsilon of the norm of each head's result


class RwkvHParams(HParams):
    """wkv_head_size, wkv_n_head, wkv_n_inner   dimensions of a head, heads, dimensions of all heads
    token_shift_count, n_shifts   number of stored inputs of the previous token: for time mix, and
                                  for channel mix, if any
    """

    n_shifts: ClassVar[int] = 2

    f_norm_eps: float = number(EPS, 0.0, least=0)
    f_norm_rms_eps: float = number(RMS_EPS, 0.0, least=0)
    wkv_head_size: int = uint("wkv.head_size", least=1)
    token_shift_count: int = uint("token_shift_count", 2)

    def load(self, keys: Keys) -> None:
        if self.n_embd % self.wkv_head_size:
            raise keys.error("wkv.head_size", f"must divide embedding_length = {self.n_embd}")
        if self.token_shift_count != self.n_shifts:
            raise keys.error("token_shift_count", f"must be {self.n_shifts}")
        self.n_embd_r = self.n_shifts * self.n_embd
        self._of_heads(self.n_embd // self.wkv_head_size)

    def _of_heads(self, n: int) -> None:
        self.wkv_n_head, self.wkv_n_inner = n, n * self.wkv_head_size
        self.n_embd_s = self.wkv_n_inner * self.wkv_head_size

    def is_recr(self, il: int) -> bool:
        return True


class ChannelMixHParams(RwkvHParams):
    """Hyperparameters of a channel mix with hidden dimensions that devices can share."""

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        hp.n_ff = tuple(
            share.count_own(n, 1, "channel_mix_value", il=il) for il, n in enumerate(self.n_ff)
        )
        return hp


def load_shift(g: GraphBuilder, il: int, n_shifts: int) -> list[Tensor]:
    """Read the inputs of the token before each sequence's first, [n_embd, 1, n_seqs] each."""
    n_embd, states = g.hp.n_embd, g.inp_rs.mctx.get_r_l(il)
    shift = reshape(read_states(g, states, n_shifts * n_embd), n_embd, n_shifts, g.ubatch.n_seqs)
    return [tokens(shift, i, 1) for i in range(n_shifts)] if n_shifts > 1 else [shift]


def store_shift(g: GraphBuilder, *inputs: Tensor, il: int) -> None:
    """Store the last token of the inputs [n_embd, T, B] (build_rwkv_token_shift_store), and tokens
    that a rollback can return to."""
    states = g.inp_rs.mctx.get_r_l(il)
    for slot in slots(g):
        last, *others = (tokens(x, x.ne[1] - 1 - slot, 1) for x in inputs)
        for other in others:
            last = concat(last, other, 1)
        # llama.cpp copies the first n_seqs tokens from there on, of any sequence.
        if last.is_contiguous():
            last = view(last, (last.n_elements,))
        g.expand(cpy(last, cells_1d(g, states, len(inputs) * g.hp.n_embd, slot)))


def shift_tokens(x: Tensor, before: Tensor) -> Tensor:
    """Shift x [n_embd, T, B] by one token, with `before` [n_embd, 1, B] as the first. -> like x"""
    return concat(before, tokens(x, 0, x.ne[1] - 1), 1)


class ChannelMix:
    """A feed-forward of mixtures of each token with the preceding one (build_rwkv6_channel_mix,
    build_rwkv7_channel_mix)."""

    parts_keep = None

    def __init__(self, w: Weights, n_embd: int, n_ff: int, *, gated: bool) -> None:
        """Declare the weights; `gated`: multiply the result by a receptance."""
        self.receptance = self.lerp_r = None
        self.lerp_k = w.tensor("channel_mix_lerp_k.weight", n_embd, 1, 1)
        self.key = w.tensor("channel_mix_key.weight", n_embd, n_ff)
        self.value = w.tensor("channel_mix_value.weight", n_ff, n_embd)
        if gated:
            self.lerp_r = w.tensor("channel_mix_lerp_r.weight", n_embd, 1, 1)
            self.receptance = w.tensor("channel_mix_receptance.weight", n_embd, n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """Mix cur [n_embd, n] with preceding tokens and apply the network. -> like cur"""
        sx = sub(x_prev, cur)
        xk = add(mul(sx, self.lerp_k), cur)
        if self.receptance is None or self.lerp_r is None:
            return g.mm(self.value, sqr(relu(g.mm(self.key, xk))))
        xr = add(mul(sx, self.lerp_r), cur)
        r = sigmoid(g.mm(self.receptance, xr))
        k = sqr(relu(g.mm(self.key, xk)))
        return mul(r, g.mm(self.value, k))


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, shifted="shift_tokens")

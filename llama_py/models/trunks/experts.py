"""Models with experts: their hyperparameters, experts after the first layers."""

from __future__ import annotations

from typing import ClassVar

from llama_py.blocks.activation import SILU, Activation
from llama_py.blocks.experts import (
    GATING_FUNCS,
    UNSCALED,
    Experts,
    ExpertSet,
    Optional,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, flag, number, uint, uints
from llama_py.hparams import HParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


def skip_dense(w: Weights) -> None:
    """Skip matrices of a dense layer, which a file may have in addition to the experts."""
    parts = "weight", "scale", "input_scale"
    w.skip(*(f"ffn_{x}.{y}" for x in ("gate", "up", "down") for y in parts))


def _n_ff_each(hp: HParams) -> int:
    return hp.n_ff[0] // max(1, hp.n_expert_used[0])


class RoutedHParams(HParams):
    """Experts in every layer."""

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")


class ExpertHParams(RoutedHParams):
    """Hidden sizes of routed experts, by layer, and of shared experts."""

    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_ff_exp = tuple(n or _n_ff_each(self) for n in self.n_ff_exp)
        self.n_ff_shexp = self.n_ff_shexp or self.n_ff[0]


class LeadingDenseHParams(HParams):
    """Experts after the first layers, and their weighing (deepseek2.cpp and others).

    gating  function from logits to probabilities, a key of experts.GATING
    usual_gating  default if the file omits it; "": required
    """

    usual_gating: ClassVar[str] = ""
    n_layer_dense_lead: int = uint("leading_dense_block_count", 0, counts="first")
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    expert_weights_norm: bool = flag("expert_weights_norm", False)
    expert_gating_func: int = uint("expert_gating_func", 0, most=len(GATING_FUNCS))
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_expert_shared: int = uint("expert_shared_count")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        number = self.expert_gating_func or self.default_gating(keys)
        self.gating = GATING_FUNCS[number - 1]
        self.n_ff_shexp = self.shared_size(keys)
        if self.n_expert == 0 and self.n_layer_dense_lead < self.n_layer:
            raise keys.error("expert_count", "must be at least 1")

    def default_gating(self, keys: Keys) -> int:
        """Return the default of expert_gating_func."""
        if not self.usual_gating:
            raise keys.error("expert_gating_func", f"must be from 1 to {len(GATING_FUNCS)}")
        return 1 + GATING_FUNCS.index(self.usual_gating)

    def shared_size(self, keys: Keys) -> int:
        """Return the hidden size of all shared experts together."""
        return self.n_ff_exp[0] * max(1, self.n_expert_shared)


def expert_layer(
    w: Weights,
    hp: LeadingDenseHParams,
    il: int,
    *,
    shared: bool = True,
    n_ff_shared: int = 0,
    bias: Optional = "optional",
    experts: ExpertSet = UNSCALED,
    act: Activation = SILU,
    routed_act: Activation | None = None,
) -> Block:
    """Declare the feed-forward of layer il: dense in the first layers, then experts.

    shared      add shared experts; n_ff_shared: their hidden size, 0: n_ff_shexp
    bias        see `Routing`
    experts     matrices of routed experts; shared experts have scales if these have
    routed_act  activation of routed experts; None: act
    """
    if il < hp.n_layer_dense_lead:
        return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=act, scaled=experts.scaled)
    routed = Experts(
        w,
        hp,
        hp.n_ff_exp[il],
        experts=experts,
        routing=Routing(hp.gating, bias=bias),
        weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
        act=routed_act or act,
    )
    if not shared:
        return routed
    n_ff = n_ff_shared or hp.n_ff_shexp
    return SharedExperts(w, hp, routed, n_ff, scaled=experts.scaled, act=act)

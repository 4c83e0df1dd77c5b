"""Hyperparameters of models with experts."""

from __future__ import annotations

from llama_py.blocks.experts import GATING_FUNCS
from llama_py.hparams import HParams
from llama_py.keys import Keys, flag, number, uint, uints


def _n_ff_each(hp: HParams) -> int:
    return hp.n_ff[0] // max(1, hp.n_expert_used[0])


class ExpertHParams(HParams):
    """Hidden sizes of routed experts, by layer, and of shared ones."""

    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_expert == 0:
            raise keys.error("expert_count", "it must be at least 1")
        self.n_ff_exp = tuple(n or _n_ff_each(self) for n in self.n_ff_exp)
        self.n_ff_shexp = self.n_ff_shexp or self.n_ff[0]


class LeadingDenseHParams(HParams):
    """Experts after the first layers, and how they are weighed (deepseek2.cpp and others).

    gating  how logits become probabilities, one of experts.GATING
    """

    n_layer_dense_lead: int = uint("leading_dense_block_count", 0)
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    expert_weights_norm: bool = flag("expert_weights_norm", False)
    expert_gating_func: int = uint("expert_gating_func", 0, most=len(GATING_FUNCS))
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_expert_shared: int = uint("expert_shared_count")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        number = self.expert_gating_func or self.default_gating(keys)
        self.gating = GATING_FUNCS[number - 1]
        self.n_ff_shexp = self.n_ff_exp[0] * max(1, self.n_expert_shared)
        if self.n_expert == 0 and self.n_layer_dense_lead < self.n_layer:
            raise keys.error("expert_count", "it must be at least 1")

    def default_gating(self, keys: Keys) -> int:
        """What expert_gating_func is where the file does not say."""
        raise keys.error("expert_gating_func", f"it must be from 1 to {len(GATING_FUNCS)}")

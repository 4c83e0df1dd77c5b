"""Positions: rotation of heads (llama-model.cpp:get_rope_freq_base, get_rope_factors)."""

from __future__ import annotations

from ggml_py.ops import rope_ext
from ggml_py.tensor import Tensor
from llama_py.cparams import CParams
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.weights import Weights


def rope(
    g: GraphBuilder, x: Tensor, il: int, factors: Tensor | None = None, *, offset: int = 0,
    type: int | None = None, pos: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x [d, H, n_tokens] with n_rot channels of each head, from `offset` on, rotated by their
    token's position, as layer il says; as it is where positions do not turn its heads.

    type  another mode than the layer's
    pos   other positions than the tokens'
    """
    how, cp = g.hp.layers[il].rope, g.cparams
    if how is None:
        return x
    n_ctx, betas = cp.n_ctx_orig_yarn, (cp.yarn_beta_fast, cp.yarn_beta_slow)
    if how.plain:
        n_ctx, betas = g.hp.n_ctx_train, (0.0, 0.0)
    pos = g.inp_pos if pos is None else pos
    return rope_ext(
        x, pos, factors, how.n_rot, how.type if type is None else type, n_ctx,
        *cp.rope_freq(how), *cp.rope_yarn(how), *betas, how.sections, offset,
    )  # fmt: skip


class RopeFactors:
    """Factors of each frequency, of long-context variants: `rope_freqs`, or for "longrope" (or
    with `long`) those for short and for long contexts. F32 [n_rot / 2]"""

    def __init__(self, w: Weights, hp: HParams, *, long: bool = False, n_rot: int = 0) -> None:
        """n_rot  channels that are turned, if they are not those of all layers"""
        self.n_ctx_orig, n = hp.n_ctx_orig_yarn, (n_rot or hp.n_rot) // 2
        self.freqs = self.long = self.short = None
        if long or hp.rope_scaling_type == "longrope":
            self.long = w.optional_tensor("rope_factors_long.weight", n)
            self.short = w.optional_tensor("rope_factors_short.weight", n)
        else:
            self.freqs = w.optional_tensor("rope_freqs.weight", n)

    def __call__(self, cparams: CParams) -> Tensor | None:
        """Those for a context's size."""
        if self.freqs is not None:
            return self.freqs
        return self.long if cparams.n_ctx_seq > self.n_ctx_orig else self.short

"""Positions: rotation of heads (llama-model.cpp:get_rope_freq_base, get_rope_factors)."""

from __future__ import annotations

from ggml_py.ops import rope_ext
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputConstant
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Rope
from llama_py.hparams.yarn import yarn
from llama_py.weights import Weights


def rope(
    g: GraphBuilder,
    x: Tensor,
    il: int,
    factors: Tensor | None = None,
    *,
    offset: int = 0,
    type: int | None = None,
    pos: Tensor | None = None,
) -> Tensor:
    """Rotate n_rot dimensions of each head of x [d, H, n_tokens], from `offset` on, by the tokens'
    positions and layer il's parameters. Layers without RoPE return x.

    type  another mode than the layer's
    pos   other positions than the tokens'
    """
    how, cp = g.hp.layers[il].rope, g.cparams
    if how is None:
        return x
    n_ctx, betas = cp.n_ctx_orig_yarn, (cp.yarn_beta_fast, cp.yarn_beta_slow)
    if not how.rounded and cp.yarn_ext_factor:
        return _exact_yarn(g, x, how, offset)
    if how.plain:
        n_ctx, betas = g.hp.n_ctx_train, (0.0, 0.0)
    pos = g.inp_pos if pos is None else pos
    return rope_ext(
        x,
        pos,
        factors,
        how.n_rot,
        how.type if type is None else type,
        n_ctx,
        *cp.rope_freq(how),
        *cp.rope_yarn(how),
        *betas,
        how.sections,
        offset,
    )


def _exact_yarn(g: GraphBuilder, x: Tensor, how: Rope, offset: int) -> Tensor:
    """Rotate x by YaRN with unrounded bounds. Frequency factors are an input, since ggml's YaRN
    rounds."""
    found = yarn(g.cparams, how)
    make = lambda: g.add_input(InputConstant("inp_rope_factors", found.factors)).values  # noqa: E731
    factors = g.shared(f"yarn {found.base}", make)
    return rope_ext(
        x,
        g.inp_pos,
        factors,
        how.n_rot,
        how.type,
        g.cparams.n_ctx_orig_yarn,
        found.base,
        1.0,
        0.0,
        found.scale,
        0.0,
        0.0,
        how.sections,
        offset,
    )


class RopeFactors:
    """Factors of each frequency, for long contexts: `rope_freqs`, or for "longrope" (or
    with `long`) separate factors for short and long contexts. F32 [n_rot / 2]"""

    def __init__(
        self, w: Weights, hp: HParams, *, long: bool = False, n_rot: int = 0, unread: bool = False
    ) -> None:
        """Declare the factors that the file has.
        n_rot  rotated dimensions, if other than all layers' n_rot
        unread  llama.cpp does not use `rope_freqs` (`Weights.unread_tensor`)
        """
        self.n_ctx_orig, n = hp.n_ctx_orig_yarn, (n_rot or hp.n_rot) // 2
        self.freqs = self.long = self.short = None
        if long or hp.rope_scaling_type == "longrope":
            self.long = w.optional_tensor("rope_factors_long.weight", n)
            self.short = w.optional_tensor("rope_factors_short.weight", n)
        else:
            declare = w.unread_tensor if unread else w.optional_tensor
            self.freqs = declare("rope_freqs.weight", n)

    def __call__(self, cparams: CParams) -> Tensor | None:
        """Return the frequency factors for a context's size, or None."""
        if self.freqs is not None:
            return self.freqs
        return self.long if cparams.n_ctx_seq > self.n_ctx_orig else self.short

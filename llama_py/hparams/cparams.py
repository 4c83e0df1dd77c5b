"""Context parameters: how to run a model, fixed when the context is created (llama-cparams.h)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ggml_py._moved import Former
from llama_py.hparams.hparams import HParams
from llama_py.hparams.layer_shape import Rope
from llama_py.hparams.variants import SLOTS

if TYPE_CHECKING:
    from llama_py.params import ContextParams

N_CTX_STEP = 256  # cells; the context size is rounded up to whole steps


@dataclass(frozen=True, slots=True)
class CParams:
    """Context parameters that graphs depend on; names as in llama-cparams.h.

    n_ctx_seq          cells of one sequence; n_ctx of all together
    n_rs_seq           number of snapshots of the recurrent state for rollback
    pooling            type of pooling over a sequence's rows, one of hparams.POOLING
    embeddings_nextn   also return the hidden state that feeds the NextN layer, of all tokens, or
                       with embeddings_nextn_masked of the tokens that are outputs
    embeddings_layer_inp  also return these layers' inputs; n_layer: the last layer's result
    nextn_pre_norm     that state is the one before the last norm
    nextn_layer        number of the NextN layer that a draft graph runs, from 0
    offload_kqv        caches are on the devices of their layers, not on the host
    swa_full           caches of layers with a window keep all tokens
    reduce_type        type of all-reduce sums for more than a few tokens
    forms              chosen variants of blocks (llama_py.hparams.variants)
    """

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    n_rs_seq: int
    rope_freq_base: float
    rope_freq_scale: float
    n_ctx_orig_yarn: int
    yarn_ext_factor: float
    yarn_attn_factor: float
    yarn_beta_fast: float
    yarn_beta_slow: float
    causal_attn: bool
    flash_attn: bool
    kv_unified: bool
    embeddings: bool
    nextn_layer: int
    offload_kqv: bool
    swa_full: bool
    pooling: str
    reduce_type: str
    forms: tuple[tuple[str, str], ...]
    embeddings_nextn: bool = False
    embeddings_nextn_masked: bool = False
    embeddings_layer_inp: tuple[int, ...] = ()
    nextn_pre_norm: bool = False

    @classmethod
    def resolve(cls, hparams: HParams, params: ContextParams) -> CParams:
        """Fill in the values that the caller left open (llama-context.cpp:llama_context).

        Fields that both classes have are copied, unless the model or another field changes them.
        """
        n_ctx, n_batch = params.n_ctx or trained_context(hparams, params), params.n_batch
        causal = params.attention == "causal"
        causal = hparams.causal_attn if params.attention == "auto" else causal
        if causal:
            n_batch = min(n_batch, n_ctx)
        n_ctx = _pad_context(n_ctx)
        n_ctx_seq = n_ctx if params.kv_unified else _pad_context(n_ctx // params.n_seq_max)
        chosen = ((kind, form) for kind, form in params.forms.items() if form != "auto")
        values: dict[str, Any] = {
            **_rope(hparams, params),
            "n_ctx": n_ctx if params.kv_unified else n_ctx_seq * params.n_seq_max,
            "n_ctx_seq": n_ctx_seq,
            "n_batch": n_batch,
            "n_ubatch": min(n_batch, params.n_ubatch),
            "causal_attn": causal,
            "flash_attn": params.flash_attn not in (False, "off") and hparams.flash_attn,
            "pooling": hparams.pooling if params.pooling == "auto" else params.pooling,
            "forms": tuple(sorted(chosen)),
        }
        for name in {f.name for f in fields(cls)} & {f.name for f in fields(params)}:
            values.setdefault(name, getattr(params, name))
        return cls(**values)

    of = Former("resolve")

    def rope_freq(self, rope: Rope) -> tuple[float, float]:
        """Base and scale of a layer's RoPE."""
        if rope.fixed:
            return rope.freq_base, rope.freq_scale
        return self.rope_freq_base, self.rope_freq_scale

    def rope_yarn(self, rope: Rope) -> tuple[float, float]:
        """Return ggml's ext_factor and attn_factor of a layer's RoPE."""
        return (self.yarn_ext_factor, self.yarn_attn_factor) if rope.yarn else (0.0, 1.0)

    @property
    def gives_more(self) -> bool:
        """True if decode returns more than logits."""
        return self.embeddings or self.embeddings_nextn or bool(self.embeddings_layer_inp)

    @property
    def in_slots(self) -> bool:
        """True if the state of a sequence is one row, at its number (llama_py.memory.slots)."""
        return any(form == SLOTS for _, form in self.forms)

    def form(self, kind: str, default: str) -> str:
        """Return the variant of a kind of block."""
        return dict(self.forms).get(kind, default)


def _rope(hparams: HParams, params: ContextParams) -> dict[str, Any]:
    """Return the fields of RoPE; 0 or negative values in params mean the model's own."""
    scaling = params.rope_scaling or hparams.rope_scaling_type
    scale = 1.0 if scaling == "none" else _scale(params) or hparams.rope_freq_scale_train
    found: dict[str, Any] = {
        "rope_freq_base": params.rope_freq_base or hparams.rope_freq_base_train,
        "rope_freq_scale": scale,
        "n_ctx_orig_yarn": _n_ctx_orig(hparams, params),
    }
    for name in ("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"):
        given = getattr(params, name)
        found[name] = given if given >= 0 else getattr(hparams, name)
    if found["yarn_ext_factor"] < 0:
        found["yarn_ext_factor"] = float(scaling == "yarn")
    if found["yarn_ext_factor"]:  # the factor in params does not count then
        found["yarn_attn_factor"] = _yarn_attn_factor(scale, hparams)
    found["yarn_attn_factor"] *= hparams.rope_attn_factor
    return found


def _scale(params: ContextParams) -> float:
    """Return the factor of RoPE's frequencies; 0 for the model's own."""
    return 1 / params.rope_scale if params.rope_scale else params.rope_freq_scale


def _n_ctx_orig(hparams: HParams, params: ContextParams) -> int:
    return params.yarn_orig_ctx or hparams.n_ctx_orig_yarn or hparams.n_ctx_train


def trained_context(hparams: HParams, params: ContextParams) -> int:
    """Return the context length that the model supports: as trained, or extended by YaRN with
    another scale (llama_init_from_model)."""
    scaling, scale = params.rope_scaling or hparams.rope_scaling_type, _scale(params)
    if scaling != "yarn" or not scale or scale == hparams.rope_freq_scale_train:
        return hparams.n_ctx_train
    return int(np.float32(_n_ctx_orig(hparams, params)) / np.float32(scale))


def _pad_context(n: int) -> int:
    return -(-n // N_CTX_STEP) * N_CTX_STEP


def _yarn_attn_factor(freq_scale: float, hparams: HParams) -> float:
    """Return the factor for scaling attention with ggml's YaRN as in training.

    ggml multiplies by 1 + 0.1 ln(factor), so that is divided out. In float32, like llama.cpp.
    """
    f32 = np.float32
    factor = f32(1.0) / f32(freq_scale)
    log = np.log(factor)

    def mscale(mul: float) -> np.float32:
        return f32(1.0) if factor <= 1 else f32(0.1) * f32(mul) * log + f32(1.0)

    log_mul = hparams.rope_yarn_log_mul
    wanted = mscale(hparams.rope_yarn_mscale) / (mscale(log_mul) if log_mul else f32(1.0))
    return float(wanted * (f32(1.0) / (f32(1.0) + f32(0.1) * log)))

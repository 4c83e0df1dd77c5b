"""Context parameters: how a model is to be run, settled once per context (llama-cparams.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_py.hparams.forms import SLOTS
from llama_py.hparams.geometry import Rope
from llama_py.hparams.hparams import HParams

N_CTX_STEP = 256  # cells; the context size is rounded up to whole steps


@dataclass(frozen=True, slots=True)
class CParams:
    """What the graph depends on besides model and batch; names as llama-cparams.h.

    n_ctx_seq          cells of one sequence; n_ctx of all together
    n_rs_seq           snapshots of the recurrent state kept for rolling back
    pooling            how the rows of a sequence become one, one of hparams.POOLING
    embeddings_nextn   also return the hidden state that feeds the NextN layer, of all tokens, or
                       with embeddings_nextn_masked of the tokens that are outputs
    embeddings_layer_inp  also return what these layers get; n_layer: what comes of the last
    nextn_pre_norm     that state is the one before the last norm
    nextn_layer        which of the NextN layers a draft graph runs, the first being 0
    offload_kqv        caches are on the devices of their layers, not on the host
    swa_full           caches of layers with a window keep all tokens
    reduce_type        of sums over devices, for more than a few tokens
    forms              how blocks are built that have several forms (llama_py.hparams.forms)
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
    embeddings: bool = False
    embeddings_nextn: bool = False
    embeddings_nextn_masked: bool = False
    embeddings_layer_inp: tuple[int, ...] = ()
    nextn_pre_norm: bool = False
    nextn_layer: int = 0
    offload_kqv: bool = True
    swa_full: bool = False
    pooling: str = "none"
    reduce_type: str = "f32"
    forms: tuple[tuple[str, str], ...] = ()

    def rope_freq(self, rope: Rope) -> tuple[float, float]:
        """Base and scale of a layer's RoPE."""
        if rope.fixed:
            return rope.freq_base, rope.freq_scale
        return self.rope_freq_base, self.rope_freq_scale

    def rope_yarn(self, rope: Rope) -> tuple[float, float]:
        """ggml's ext_factor and attn_factor of a layer's RoPE."""
        return (self.yarn_ext_factor, self.yarn_attn_factor) if rope.yarn else (0.0, 1.0)

    @property
    def gives_more(self) -> bool:
        """Whether something besides logits is wanted."""
        return self.embeddings or self.embeddings_nextn or bool(self.embeddings_layer_inp)

    @property
    def in_slots(self) -> bool:
        """Whether the states of a sequence are one row, at its number (llama_py.memory.slots)."""
        return any(form == SLOTS for _, form in self.forms)

    def form(self, kind: str, default: str) -> str:
        """How blocks of a kind are built."""
        return dict(self.forms).get(kind, default)


def make_cparams(
    hparams: HParams,
    *,
    n_ctx: int = 0,
    n_batch: int = 2048,
    n_ubatch: int = 512,
    n_seq_max: int = 1,
    n_rs_seq: int = 0,
    flash_attn: bool = True,
    kv_unified: bool = False,
    rope_scaling_type: str | None = None,
    rope_freq_base: float = 0.0,
    rope_freq_scale: float = 0.0,
    yarn_orig_ctx: int = 0,
    yarn_ext_factor: float = -1.0,
    yarn_attn_factor: float = -1.0,
    yarn_beta_fast: float = -1.0,
    yarn_beta_slow: float = -1.0,
    causal_attn: bool | None = None,
) -> CParams:
    """Fill in what the caller left open from the model (llama-context.cpp:llama_context).

    n_ctx 0 is the model's own context; None, 0 and below 0 of what concerns RoPE are the model's,
    whose context grows with a scale that YaRN is given. The others are checked by ContextParams.
    """
    scaling = rope_scaling_type or hparams.rope_scaling_type
    scale = rope_freq_scale or hparams.rope_freq_scale_train
    if scaling == "none":
        scale = 1.0
    n_ctx_orig = yarn_orig_ctx or hparams.n_ctx_orig_yarn or hparams.n_ctx_train
    n_ctx = n_ctx or trained_context(hparams, rope_scaling_type, rope_freq_scale, yarn_orig_ctx)
    causal_attn = hparams.causal_attn if causal_attn is None else causal_attn
    if causal_attn:
        n_batch = min(n_batch, n_ctx)
    n_ctx = _padded(n_ctx)
    n_ctx_seq = n_ctx if kv_unified else _padded(n_ctx // n_seq_max)
    ext_factor = yarn_ext_factor if yarn_ext_factor >= 0 else hparams.yarn_ext_factor
    ext_factor = ext_factor if ext_factor >= 0 else float(scaling == "yarn")
    attn_factor = yarn_attn_factor if yarn_attn_factor >= 0 else hparams.yarn_attn_factor
    if ext_factor:  # what was asked for does not count then
        attn_factor = _yarn_attn_factor(scale, hparams)
    return CParams(
        n_ctx=n_ctx if kv_unified else n_ctx_seq * n_seq_max,
        n_ctx_seq=n_ctx_seq,
        n_batch=n_batch,
        n_ubatch=min(n_batch, n_ubatch),
        n_seq_max=n_seq_max,
        n_rs_seq=n_rs_seq,
        rope_freq_base=rope_freq_base or hparams.rope_freq_base_train,
        rope_freq_scale=scale,
        n_ctx_orig_yarn=n_ctx_orig,
        yarn_ext_factor=ext_factor,
        yarn_attn_factor=attn_factor * hparams.rope_attn_factor,
        yarn_beta_fast=yarn_beta_fast if yarn_beta_fast >= 0 else hparams.yarn_beta_fast,
        yarn_beta_slow=yarn_beta_slow if yarn_beta_slow >= 0 else hparams.yarn_beta_slow,
        causal_attn=causal_attn,
        flash_attn=flash_attn and hparams.flash_attn,
        kv_unified=kv_unified,
    )


def trained_context(
    hparams: HParams, rope_scaling_type: str | None, rope_freq_scale: float, yarn_orig_ctx: int
) -> int:
    """Tokens that the model can be trusted with: what it was trained with, or what YaRN makes of
    that with another scale (llama_init_from_model)."""
    scaling, scale = rope_scaling_type or hparams.rope_scaling_type, rope_freq_scale
    if scaling != "yarn" or not scale or scale == hparams.rope_freq_scale_train:
        return hparams.n_ctx_train
    n_ctx_orig = yarn_orig_ctx or hparams.n_ctx_orig_yarn or hparams.n_ctx_train
    return int(np.float32(n_ctx_orig) / np.float32(scale))


def _padded(n: int) -> int:
    return -(-n // N_CTX_STEP) * N_CTX_STEP


def _yarn_attn_factor(freq_scale: float, hparams: HParams) -> float:
    """The factor that makes ggml's YaRN scale attention as the model was trained with.

    ggml multiplies by 1 + 0.1 ln(factor) itself, so that is divided out. In float32, as llama.cpp.
    """
    f32 = np.float32
    factor = f32(1.0) / f32(freq_scale)
    log = np.log(factor)

    def mscale(mul: float) -> np.float32:
        return f32(1.0) if factor <= 1 else f32(0.1) * f32(mul) * log + f32(1.0)

    log_mul = hparams.rope_yarn_log_mul
    wanted = mscale(hparams.rope_yarn_mscale) / (mscale(log_mul) if log_mul else f32(1.0))
    return float(wanted * (f32(1.0) / (f32(1.0) + f32(0.1) * log)))

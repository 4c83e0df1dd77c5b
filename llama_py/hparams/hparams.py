"""Hyperparameters: typed, checked values of a file's metadata (llama-model.cpp:load_hparams).

`HParams` declares the keys that architectures share; an architecture subclasses it, declares its
additional keys, and specifies differences per layer (`layer`, `rope`, `window`, `is_recr`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ggml_py._moved import Former
from llama_py.gguf.keys import (
    END_OF_POSITIONS,
    HIGHEST_BASE,
    LOWEST_BASE,
    DeclaredKeys,
    Field,
    Keys,
    base,
    flag,
    number,
    text,
    uint,
    uints,
)
from llama_py.hparams.hadamard import Hadamard
from llama_py.hparams.layer_shape import (
    ROPE_IMROPE,
    ROPE_MROPE,
    ROPE_NONE,
    LayerShape,
    NonCausal,
    Rope,
    Window,
    WindowKind,
    unturned_pairs,
)
from llama_py.hparams.shard import Shard
from llama_py.params import POOLING
from llama_py.params.like import LLAMA_CPP, TRANSFORMERS

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_LAYERS = 512  # llama-hparams.h:LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # llama-hparams.h:LLAMA_MAX_EXPERTS
L2_EPS = 1e-6  # epsilon for queries and keys of delta nets in the authors' code
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
AXES = {"tyxz": (0, 1, 2, 3), "zyxt": (3, 1, 2, 0)}  # position axes of RoPE's sections, by order
CLASSIFIER_ACTIVATION: Field = text("classifier.activation", choices=("gelu", "silu", "tanh"))

EPS, RMS_EPS = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"


def _head_size(hp: HParams) -> int:
    """Return n_embd divided by the heads of the first layer that has some."""
    return hp.n_embd // hp.n_head_first if hp.n_head_first else 0


class HParams(DeclaredKeys):
    """Hyperparameters of a model for graphs, memory and weights; names as in llama-hparams.h.

    n_layer     layers to run; n_layer_all also counts the NextN (MTP) layers after them, and
                then n_layer_bare without weights, which store data for the trunk
    n_embd_inp  dimensions of input embeddings
    n_deepstack   later layers with additional input dimensions in embeddings, n_embd each
    yarn_*      defaults of YaRN's parameters
    embedding_scale   factor of embeddings; 0: no scaling
    attention_scale   factor of products of queries and keys; 0: 1 / sqrt(n_embd_head_k)
    layers      the sizes of each layer, including NextN layers
    n_head_first  heads of the first layer that has some
    rope_type   ggml's RoPE mode; ROPE_NONE if positions are not encoded
    n_ff_exp, n_ff_shexp   hidden sizes of routed experts, by layer, and of shared experts
    n_embd_r, n_embd_s   floats of convolution state and of recurrent state, per recurrent layer
    state_sections   consecutive sections of these two, if devices share them; (): one section
    max_alibi_bias   maximum bias of ALiBi; 0: no ALiBi
    clamp_kqv   maximum absolute value of queries, keys and values; 0: no limit
    n_cls_out   scores of a reranker
    cls_activation  activation of the dense layer before them; "": the architecture's
    section_order   position axes of RoPE's sections in embeddings, a key of AXES
    n_pos_per_embd   positions per token: one, or one per RoPE axis
    time_last   the last axis has the positions of the first
    hadamard   rotations of folded weights, if any
    keys_read  full names of all keys that the model asks for
    non_causal_type  layers where tokens see later tokens, if the context is non-causal
    """

    rope_type: int = ROPE_NONE
    n_embd_r: int = 0
    n_embd_s: int = 0
    rope_yarn_log_mul: float = 0.0
    rope_yarn_mscale: float = 1.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    embedding_scale: float = 0.0
    n_layer_bare: int = 0
    n_deepstack: int = 0
    rope_sections: tuple[int, ...] = (0, 0, 0, 0)
    attention_scale: float = 0.0
    attn_logit_softcap: float = 0.0
    final_logit_softcap: float = 0.0
    max_alibi_bias: float = 0.0
    clamp_kqv: float = 0.0
    logit_scale: float = 0.0
    time_last: bool = False
    f_norm_eps: float = 0.0
    f_norm_rms_eps: float = 0.0
    l2_eps: float = 0.0  # delta nets only

    n_ctx_train: int = uint("context_length", least=1, most=END_OF_POSITIONS)
    n_embd: int = uint("embedding_length", least=1)
    n_embd_out: int = uint("embedding_length_out", lambda hp: hp.n_embd, least=1)
    n_layer_all: int = uint("block_count", least=1, most=MAX_LAYERS, counts="all")
    n_layer_nextn: int = uint("nextn_predict_layers", 0, counts="last")
    causal_attn: bool = flag("attention.causal", True)
    pooling_type: int = uint("pooling_type", 0)
    pooling_type_cls: int = uint("classifier.pooling_type", 0)
    n_expert: int = uint("expert_count", 0, most=MAX_EXPERTS)
    n_expert_used: tuple[int, ...] = uints("expert_used_count", 0)
    n_expert_groups: int = uint("expert_group_count", 0)
    n_group_used: int = uint("expert_group_used_count", 0)
    n_ff: tuple[int, ...] = uints("feed_forward_length", 0)
    n_head: tuple[int, ...] = uints("attention.head_count", 0)
    n_head_kv: tuple[int, ...] = uints("attention.head_count_kv", lambda hp: hp.n_head[0])
    n_embd_head_k: int = uint("attention.key_length", _head_size)
    n_embd_head_v: int = uint("attention.value_length", _head_size)
    n_rot: int = uint("rope.dimension_count", lambda hp: hp.n_embd_head_k)
    rope_freq_base_train: float = base("rope.freq_base", 10000.0)
    rope_scaling_type: str = text("rope.scaling.type", "linear", choices=ROPE_SCALINGS)
    section_order: str = text("rope.section_order", "tyxz", choices=tuple(AXES))
    n_ctx_orig_yarn: int = uint(
        "rope.scaling.original_context_length", lambda hp: hp.n_ctx_train, most=END_OF_POSITIONS
    )
    rope_attn_factor: float = number(
        "rope.scaling.attn_factor", 1.0, least=-HIGHEST_BASE, most=HIGHEST_BASE
    )
    n_ff_exp: tuple[int, ...] = ()  # read by subclasses, after the values that it depends on
    n_ff_shexp: int = 0

    non_causal_type: ClassVar[NonCausal] = "all"
    equal_experts: ClassVar[bool] = False  # each layer must use the same number of experts
    flash_attn: ClassVar[bool] = True  # flash attention computes the model's attention
    required_heads: ClassVar[bool] = False  # a file without attention heads is invalid
    equal_heads: ClassVar[bool] = False  # keys and values have the same size
    whole_rope: ClassVar[bool] = False  # RoPE rotates whole heads
    cached: bool = True  # keys and values are cached; else tokens see only their batch
    mixes_embd: ClassVar[bool] = True  # a batch can have tokens and embeddings
    decides: ClassVar[bool] = False  # scores of marked options (Batch.marks) instead of logits
    within_step: int = 1  # without a cache, keys are padded to a multiple of this

    def __init__(self, metadata: Mapping[str, Any], arch: str, like: str = LLAMA_CPP) -> None:
        keys = Keys(metadata, arch)
        self.arch, self.like = arch, like
        self.differences: list[str] = []
        super().__init__(keys)
        if not keys.has("attention.head_count_kv"):
            self.n_head_kv = self.n_head
        self.n_vocab = keys.count("/tokenizer.ggml.tokens") or keys.uint("vocab_size")
        self.keys_read = keys.read
        self.n_cls_out = keys.count("classifier.output_labels") or 1
        given = keys.has(CLASSIFIER_ACTIVATION.key)
        self.cls_activation: str = CLASSIFIER_ACTIVATION.read(keys, self) if given else ""
        self.rope_freq_scale_train = _freq_scale(keys)
        self._check_layers(keys)
        self._check_experts(keys)
        self._check_heads(keys)
        self._check_rope(keys)
        self.load(keys)
        self.hadamard = Hadamard.read(keys)
        self.per_layer_keys = frozenset(keys.per_layer)
        self._check_axes(keys)
        self.layers = tuple(self.layer(il) for il in range(self.n_layer_all))

    def load(self, keys: Keys) -> None:
        """Set values that depend on several keys, and check them."""

    def differs(self, what: str) -> bool:
        """Note a difference between llama.cpp and the authors' code for this file.

        Returns:
            True if the graph must follow the authors' code.
        """
        if what not in self.differences:
            self.differences.append(what)
        return self.like == TRANSFORMERS

    def delta_net_eps(self) -> float:
        """Return the epsilon of the L2 norm of queries and keys in delta nets."""
        eps = self.f_norm_rms_eps
        if math.isclose(eps, L2_EPS, rel_tol=1e-6):
            return eps
        text = f"delta nets normalize queries and keys with epsilon {eps:.1g}, not {L2_EPS:.1g}"
        return L2_EPS if self.differs(text) else eps

    def layer(self, il: int) -> LayerShape:
        """Return the sizes of layer il."""
        recurrent = self.is_recr(il)
        return LayerShape(
            n_head=self.n_head[il],
            n_head_kv=self.n_head_kv[il],
            n_embd_head_k=self.n_embd_head_k,
            n_embd_head_v=self.n_embd_head_v,
            n_ff=self.n_ff[il],
            n_expert_used=self.n_expert_used[il],
            rope=self.rope(il),
            window=None if recurrent else self.window(il),
            recurrent=recurrent,
        )

    def shared(self, share: Shard) -> Self:
        """Return the sizes of one device's part: some of the heads, and of the hidden dimensions of
        every expert.

        A subclass with additional sizes divides them in the same way.
        """
        hp, routed = copy(self), bool(self.n_ff_exp)
        hp.layers = tuple(
            share.shard_ffn(self.shared_heads(share, il), il, routed=routed)
            for il in range(self.n_layer_all)
        )
        hp.n_ff_exp = tuple(
            share.count_own(n, 1, "ffn_down_exps", il=il) if n else 0
            for il, n in enumerate(self.n_ff_exp)
        )
        hp.n_ff_shexp = (
            share.count_own(self.n_ff_shexp, 1, "ffn_down_shexp") if self.n_ff_shexp else 0
        )
        return hp

    def shared_heads(self, share: Shard, il: int) -> LayerShape:
        """Return layer il with one device's part of the heads; ALiBi layers are not divided."""
        shape = self.layers[il]
        return shape if self.max_alibi_bias > 0 else share.heads(shape, il)

    def rope(self, il: int) -> Rope | None:
        """Return the RoPE parameters of layer il, or None."""
        if self.rope_type == ROPE_NONE:
            return None
        return Rope(
            self.rope_type,
            self.n_rot,
            self.rope_freq_base_train,
            self.rope_freq_scale_train,
            self.rope_sections,
        )

    def window(self, il: int) -> Window | None:
        """Return the sliding window of layer il; None: full attention."""
        return None

    def is_recr(self, il: int) -> bool:
        """Return True if layer il keeps a recurrent state."""
        return False

    @property
    def state_sections(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (), ()

    def kv_layer(self, il: int) -> int:
        """Return the layer with the keys and values of layer il's attention."""
        return il

    def layer_lists(self) -> dict[str, tuple[bool, ...] | int]:
        """Return the keys that list values per layer instead of an interval, and the number that
        disables the interval."""
        return {}

    @property
    def n_layer(self) -> int:
        return self.n_layer_all - self.n_layer_nextn - self.n_layer_bare

    @property
    def kept_layers(self) -> list[int]:
        """Layers with keys, values or states that the trunk needs."""
        n_all = self.n_layer_all
        return [*range(self.n_layer), *range(n_all - self.n_layer_bare, n_all)]

    @property
    def n_head_first(self) -> int:
        """Heads of the first layer that has some."""
        return next((n for n in self.n_head if n), 0)

    @property
    def pooling(self) -> str:
        """Default pooling of a sequence's rows; one of POOLING."""
        known = self.pooling_type < len(POOLING)  # -1: not specified
        return POOLING[self.pooling_type] if known else "none"

    @cached_property
    def has_windows(self) -> bool:
        """True if some layers use sliding-window attention."""
        return any(shape.window is not None for shape in self.layers)

    @property
    def classifies_mean(self) -> bool:
        """True if a reranker's classifier gets the mean of the rows."""
        return self.pooling_type_cls == POOLING.index("mean")

    @property
    def n_embd_inp(self) -> int:
        return self.n_embd * (1 + self.n_deepstack)

    @property
    def n_embd_inp_enc(self) -> int:
        """Length of the embeddings that an encoder gets."""
        return self.n_embd_inp

    @property
    def n_embd_hidden(self) -> int:
        """Dimensions of hidden states that accompany tokens."""
        return self.n_embd

    @property
    def position_axes(self) -> tuple[int, ...]:
        """Position axis of each section of RoPE, for embeddings with several positions."""
        return AXES[self.section_order]

    @cached_property
    def n_pos_per_embd(self) -> int:
        return 4 if self.rope_type in (ROPE_MROPE, ROPE_IMROPE) else 1

    def _check_layers(self, keys: Keys) -> None:
        if self.n_layer_nextn >= self.n_layer_all:
            raise keys.error(
                "nextn_predict_layers", f"must be less than block_count = {self.n_layer_all}"
            )

    def _check_experts(self, keys: Keys) -> None:
        used = max(self.n_expert_used)
        if used > self.n_expert or (self.n_expert > 0 and used == 0):
            rule = (
                f"from 1 to expert_count = {self.n_expert}"
                if self.n_expert
                else "0 without experts"
            )
            raise keys.error("expert_used_count", f"must be {rule}")
        if self.equal_experts and len(set(self.n_expert_used)) > 1:
            raise keys.error(
                "expert_used_count",
                f"must be the same number in all layers of a {self.arch} model, because llama.cpp "
                "chooses layer 0's number of experts in every layer, but adds each layer's number",
            )
        if self.n_expert_groups > 1:
            if self.n_expert % self.n_expert_groups:
                raise keys.error(
                    "expert_group_count", f"must divide expert_count = {self.n_expert}"
                )
            if not 0 < self.n_group_used < self.n_expert_groups:
                raise keys.error(
                    "expert_group_used_count",
                    f"must be from 1 to expert_group_count - 1 = {self.n_expert_groups - 1}",
                )

    def _check_heads(self, keys: Keys) -> None:
        if not any(self.n_head):
            if self.required_heads:
                raise keys.error("attention.head_count", "must be at least 1")
            self.n_embd_head_k = self.n_embd_head_v = self.n_rot = 0
            return
        given = keys.has("attention.head_count_kv")
        for heads, heads_kv in zip(self.n_head, self.n_head_kv, strict=True):
            if heads_kv and heads % heads_kv:
                key = "head_count_kv" if given else "head_count"
                raise keys.error(f"attention.{key}", f"must divide head_count = {heads}")
        both = keys.has("attention.key_length") and keys.has("attention.value_length")
        if not both and self.n_embd % self.n_head_first:
            raise keys.error(
                "attention.head_count",
                f"must divide embedding_length = {self.n_embd} when key_length or value_length "
                f"is missing",
            )
        for key, n in (("key", self.n_embd_head_k), ("value", self.n_embd_head_v)):
            if n == 0:
                raise keys.error(f"attention.{key}_length", "must be at least 1")
        if self.equal_heads and self.n_embd_head_v != self.n_embd_head_k:
            raise keys.error("attention.value_length", f"must be key_length = {self.n_embd_head_k}")

    def _check_axes(self, keys: Keys) -> None:
        if self.section_order != "tyxz" and self.n_pos_per_embd != len(AXES["tyxz"]):
            raise keys.error(
                "rope.section_order", "must be 'tyxz' for a model without several position axes"
            )
        if self.rope_type == ROPE_IMROPE:
            pairs = unturned_pairs(self.rope_sections, self.n_rot)
            if pairs:
                text = f"sections {list(self.rope_sections)} of RoPE do not rotate pairs {pairs}"
                self.time_last = self.differs(text)

    def _check_rope(self, keys: Keys) -> None:
        size = self.n_embd_head_k
        if self.n_rot % 2:
            raise keys.error("rope.dimension_count", "must be even")
        if self.whole_rope and self.n_rot != size:
            raise keys.error("rope.dimension_count", f"must be the head size {size}")
        if self.rope_type != ROPE_NONE and size and not 0 < self.n_rot <= size:
            raise keys.error("rope.dimension_count", f"must be from 2 to the head size {size}")
        several = self.rope_type in (ROPE_MROPE, ROPE_IMROPE) or any(self.rope_sections)
        if several and not 0 < sum(self.rope_sections) <= size:
            raise keys.error("rope.dimension_sections", f"sum must be from 1 to {size}")

    kv_of = Former("kv_layer")
    windowed = Former("has_windows")
    n_embd_beside = Former("n_embd_hidden")


def _freq_scale(keys: Keys) -> float:
    key = "scaling.factor" if keys.has("rope.scaling.factor") else "scale_linear"
    factor = keys.number(f"rope.{key}", 0.0)
    if factor < 0:
        raise keys.error(f"rope.{key}", "must not be negative")
    if factor and not LOWEST_BASE <= factor <= HIGHEST_BASE:
        raise keys.error(f"rope.{key}", f"must be 0, or from {LOWEST_BASE} to {HIGHEST_BASE}")
    return 1.0 / factor if factor else 1.0


class WindowedHParams(HParams):
    """Layers with a window among layers without (llama_model_base::load_swa_pattern).

    n_swa      tokens of the window; 0: no windows
    n_pattern  period of layers without a window, if the file has no list; 0: all have windows
    dense_first  the first layer of a period has no window, not the last
    """

    n_pattern: ClassVar[int]
    dense_first: ClassVar[bool] = False
    window_kind: ClassVar[WindowKind] = "standard"
    rope_freq_scale_swa: float = 1.0

    n_swa: int = uint("attention.sliding_window", 0)
    n_embd_head_k_swa: int = uint("attention.key_length_swa", lambda hp: hp.n_embd_head_k)
    n_embd_head_v_swa: int = uint("attention.value_length_swa", lambda hp: hp.n_embd_head_v)
    n_rot_swa: int = uint("rope.dimension_count_swa", lambda hp: hp.n_rot)
    rope_freq_base_swa: float = base("rope.freq_base_swa", 10000.0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.swa_layers = self._pattern(keys) if self.n_swa else (False,) * self.n_layer_all
        if any(self.swa_layers):
            self._check_windowed(keys)

    def _check_windowed(self, keys: Keys) -> None:
        size, size_v = self.n_embd_head_k_swa, self.n_embd_head_v_swa
        if self.equal_heads and size_v != size:
            raise keys.error("attention.value_length_swa", f"must be key_length_swa = {size}")
        if self.n_rot_swa % 2 or not 0 < self.n_rot_swa <= size:
            raise keys.error("rope.dimension_count_swa", f"must be even, from 2 to {size}")

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        n, key = self.n_layer, "attention.sliding_window_pattern"
        if keys.is_array(key):
            return keys.flags(key, self.n_layer_all)
        every = keys.uint(key, self.n_pattern)
        dense = 0 if self.dense_first else every - 1
        trunk = tuple(every == 0 or il % every != dense for il in range(n))
        return trunk + (False,) * (self.n_layer_all - n)

    def layer_lists(self) -> dict[str, tuple[bool, ...] | int]:
        return super().layer_lists() | {"attention.sliding_window_pattern": self.swa_layers}

    def layer(self, il: int) -> LayerShape:
        shape = super().layer(il)
        if shape.window is None:
            return shape
        d_k, d_v = self.n_embd_head_k_swa, self.n_embd_head_v_swa
        return replace(shape, n_embd_head_k=d_k, n_embd_head_v=d_v)

    def window(self, il: int) -> Window | None:
        return Window(self.n_swa, self.window_kind) if self.swa_layers[il] else None

    def rope(self, il: int) -> Rope | None:
        if not self.swa_layers[il] or self.rope_type == ROPE_NONE:
            return super().rope(il)
        return Rope(
            self.rope_type,
            self.n_rot_swa,
            self.rope_freq_base_swa,
            self.rope_freq_scale_swa,
            self.rope_sections,
            fixed=True,
        )

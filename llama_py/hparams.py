"""Hyperparameters: typed, checked values out of a file's metadata (llama-model.cpp:load_hparams).

`Keys` reads one key at a time and names it in every error. `HParams` reads the keys that all
architectures share; an architecture subclasses it and reads its own in `load`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ggml_py.errors import HParamsError

MAX_LAYERS = 512  # llama-hparams.h:LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # llama-hparams.h:LLAMA_MAX_EXPERTS
_MAX_UINT = 2**32 - 1

ROPE_NONE, ROPE_NORMAL, ROPE_NEOX, ROPE_MROPE, ROPE_IMROPE = -1, 0, 2, 8, 40
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")

T = TypeVar("T")


class Keys:
    """Typed getters over metadata; `key` is written without the architecture's prefix.

    A getter with a default makes the key optional. Each raises HParamsError, which has the full key
    and its value, for a missing key, a wrong type and a value that makes no sense.
    """

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.metadata = metadata
        self.arch = arch

    def has(self, key: str) -> bool:
        return f"{self.arch}.{key}" in self.metadata

    def uint(self, key: str, default: int | None = None) -> int:
        return self._scalar(key, default, _as_uint)

    def number(self, key: str, default: float | None = None) -> float:
        return self._scalar(key, default, _as_float)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._scalar(key, default, _as_bool)

    def text(self, key: str, default: str | None = None) -> str:
        return self._scalar(key, default, _as_str)

    def uints(self, key: str, n: int, default: int | None = None) -> tuple[int, ...]:
        """n values: an array of n, or one number for all of them."""
        return self._values(key, n, default, _as_uint)

    def flags(self, key: str, n: int, default: bool | None = None) -> tuple[bool, ...]:
        """n flags: an array of n, or one for all of them."""
        return self._values(key, n, default, _as_bool)

    def count(self, full_key: str) -> int:
        """Items of the array `full_key` (written with its prefix); 0 where there is none."""
        value = self.metadata.get(full_key)
        return len(value) if isinstance(value, list | np.ndarray) else 0

    def error(self, key: str, message: str) -> HParamsError:
        """An error about `key` that shows its value, for checks that involve several keys."""
        full_key = f"{self.arch}.{key}"
        value = self.metadata.get(full_key)
        shown = "missing" if value is None else _short(value)
        return HParamsError(f"{full_key} is {shown}; {message}")

    def _get(self, key: str, default: T | None) -> Any:
        value = self.metadata.get(f"{self.arch}.{key}", default)
        if value is None:
            raise HParamsError(
                f"the metadata has no key {self.arch}.{key}, which a model of architecture "
                f"{self.arch!r} needs; convert the model again"
            )
        return value

    def _scalar(self, key: str, default: T | None, convert: Callable[[Any], T | None]) -> T:
        value = convert(self._get(key, default))
        if value is None:
            raise self.error(key, f"it must be {_MEANING[convert]}")
        return value

    def _values(
        self, key: str, n: int, default: T | None, convert: Callable[[Any], T | None]
    ) -> tuple[T, ...]:
        raw = self._get(key, default)
        if not isinstance(raw, list | np.ndarray):
            return (self._scalar(key, default, convert),) * n
        if len(raw) != n:
            raise self.error(key, f"it must have {n} items, not {len(raw)}")
        values = tuple(v for item in raw if (v := convert(item)) is not None)
        if len(values) != n:
            raise self.error(key, f"each item must be {_MEANING[convert]}")
        return values


def _as_uint(value: Any) -> int | None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if whole and 0 <= value <= _MAX_UINT else None


def _as_float(value: Any) -> float | None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _as_bool(value: Any) -> bool | None:
    flag = isinstance(value, bool | np.bool_) or _as_uint(value) in (0, 1)
    return bool(value) if flag else None


def _as_str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_MEANING: dict[Any, str] = {
    _as_uint: "a whole number from 0 to 2^32 - 1",
    _as_float: "a finite number",
    _as_bool: "true or false",
    _as_str: "a text",
}


def _short(value: Any) -> str:
    text = repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class HParams:
    """What the graph, the memory and the weights need to know of a model; names as llama-hparams.h.

    n_layer     layers that are run; n_layer_all also counts the NextN (MTP) layers after them
    n_rot       channels of a head that RoPE turns
    rope_type   ggml's RoPE mode; ROPE_NONE if positions are not encoded
    n_embd_r, n_embd_s   floats of convolution state and of recurrent state, per recurrent layer
    n_swa       how many tokens, itself included, a layer with is_swa sees
    rope_offset channels of a cached key before those that RoPE turns
    """

    rope_type: ClassVar[int] = ROPE_NONE

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        keys = Keys(metadata, arch)
        self.arch = arch
        self.n_embd_r = 0
        self.n_embd_s = 0
        self.rope_sections: tuple[int, ...] = (0, 0, 0, 0)
        self.attn_logit_softcap = 0.0
        self.final_logit_softcap = 0.0
        self.max_alibi_bias = 0.0
        self.n_swa = 0
        self.rope_offset = 0
        self.rope_freq_base_train_swa = 10000.0
        self.rope_freq_scale_train_swa = 1.0
        self._load_sizes(keys)
        self._load_experts(keys)
        self._load_heads(keys)
        self._load_rope(keys)
        self.recurrent_layers = (False,) * self.n_layer_all
        self.swa_layers = (False,) * self.n_layer_all
        self.load(keys)

    def load(self, keys: Keys) -> None:
        """Read the architecture's own keys."""

    def load_rms_eps(self, keys: Keys) -> None:
        """Read the epsilon of the RMS norms, which an architecture that has them needs."""
        self.f_norm_rms_eps = keys.number("attention.layer_norm_rms_epsilon")
        if self.f_norm_rms_eps < 0:
            raise keys.error("attention.layer_norm_rms_epsilon", "it must not be negative")

    def load_rope_sections(self, keys: Keys) -> None:
        """Read how many channel pairs each of RoPE's four position axes turns."""
        self.rope_sections = keys.uints("rope.dimension_sections", 4)
        if not 0 < sum(self.rope_sections) <= self.n_embd_head_k:
            raise keys.error(
                "rope.dimension_sections", f"their sum must be from 1 to {self.n_embd_head_k}"
            )

    def load_expert_sizes(self, keys: Keys) -> None:
        """Read the hidden sizes of routed and shared experts of a model that has both."""
        if self.n_expert == 0:
            raise keys.error("expert_count", "it must be at least 1")
        n_ff, n_used = self.n_ff(), self.n_expert_used()
        self.n_ff_exp = keys.uints("expert_feed_forward_length", self.n_layer_all, 0)[0]
        self.n_ff_exp = self.n_ff_exp or n_ff // n_used
        self.n_ff_shexp = keys.uint("expert_shared_feed_forward_length", 0) or n_ff

    def load_swa(self, keys: Keys, n_pattern: int) -> None:
        """Read the attention window and which layers have it: all but every n_pattern-th, unless
        the file says otherwise."""
        self.n_swa = keys.uint("attention.sliding_window", 0)
        if self.n_swa == 0:
            return
        for key, size in (
            ("attention.key_length", self.n_embd_head_k),
            ("attention.value_length", self.n_embd_head_v),
            ("rope.dimension_count", self.n_rot),
        ):
            if keys.uint(f"{key}_swa", size) != size:
                raise keys.error(f"{key}_swa", f"it must be {key} = {size}")
        self.rope_freq_base_train_swa = keys.number("rope.freq_base_swa", 10000.0)
        n, key = self.n_layer, "attention.sliding_window_pattern"
        if keys.count(f"{keys.arch}.{key}"):
            self.swa_layers = keys.flags(key, self.n_layer_all)
            return
        every = keys.uint(key, n_pattern)
        trunk = tuple(every == 0 or il % every < every - 1 for il in range(n))
        self.swa_layers = trunk + self.swa_layers[n:]

    def need_one_head_size(self, keys: Keys) -> None:
        """Refuse a model without attention heads, or whose keys and values differ in size."""
        if not self.n_head():
            raise keys.error("attention.head_count", "it must be at least 1")
        if self.n_embd_head_v != self.n_embd_head_k:
            raise keys.error(
                "attention.value_length", f"it must be key_length = {self.n_embd_head_k}"
            )

    def n_head(self, il: int = 0) -> int:
        return self._n_head[il]

    def n_head_kv(self, il: int = 0) -> int:
        return self._n_head_kv[il]

    def n_ff(self, il: int = 0) -> int:
        return self._n_ff[il]

    def n_expert_used(self, il: int = 0) -> int:
        return self._n_expert_used[il]

    def n_embd_k_gqa(self, il: int = 0) -> int:
        """Elements of one token's keys over all key/value heads."""
        return self.n_embd_head_k * self._n_head_kv[il]

    def n_embd_v_gqa(self, il: int = 0) -> int:
        """Elements of one token's values over all key/value heads."""
        return self.n_embd_head_v * self._n_head_kv[il]

    def is_recr(self, il: int) -> bool:
        """Whether layer il keeps a recurrent state instead of keys and values."""
        return self.recurrent_layers[il]

    def is_swa(self, il: int) -> bool:
        """Whether layer il sees only the last n_swa tokens."""
        return self.swa_layers[il]

    def kv_heads(self, il: int) -> tuple[int, int, int]:
        """Heads, key size and value size that layer il caches of a token; value size 0 when the
        values are the beginning of the keys."""
        return self._n_head_kv[il], self.n_embd_head_k, self.n_embd_head_v

    @property
    def n_pos_per_embd(self) -> int:
        """Positions per token: one, or one per RoPE axis."""
        return 4 if self.rope_type in (ROPE_MROPE, ROPE_IMROPE) else 1

    def _load_sizes(self, keys: Keys) -> None:
        self.n_ctx_train = keys.uint("context_length")
        self.n_embd = keys.uint("embedding_length")
        self.n_layer_all = keys.uint("block_count")
        self.n_layer_nextn = keys.uint("nextn_predict_layers", 0)
        self.causal_attn = keys.flag("attention.causal", True)
        for key, n in (("context_length", self.n_ctx_train), ("embedding_length", self.n_embd)):
            if n == 0:
                raise keys.error(key, "it must be at least 1")
        if not 1 <= self.n_layer_all <= MAX_LAYERS:
            raise keys.error("block_count", f"it must be from 1 to {MAX_LAYERS}")
        if self.n_layer_nextn >= self.n_layer_all:
            raise keys.error(
                "nextn_predict_layers", f"it must be less than block_count = {self.n_layer_all}"
            )
        self.n_layer = self.n_layer_all - self.n_layer_nextn
        self._n_ff = keys.uints("feed_forward_length", self.n_layer_all, 0)
        self.n_vocab = keys.count("tokenizer.ggml.tokens") or keys.uint("vocab_size")

    def _load_experts(self, keys: Keys) -> None:
        self.n_expert = keys.uint("expert_count", 0)
        self._n_expert_used = keys.uints("expert_used_count", self.n_layer_all, 0)
        self.n_expert_groups = keys.uint("expert_group_count", 0)
        self.n_group_used = keys.uint("expert_group_used_count", 0)
        if self.n_expert > MAX_EXPERTS:
            raise keys.error("expert_count", f"it must be at most {MAX_EXPERTS}")
        used = max(self._n_expert_used)
        if used > self.n_expert or (self.n_expert > 0 and used == 0):
            rule = f"from 1 to expert_count = {self.n_expert}" if self.n_expert else "0: no experts"
            raise keys.error("expert_used_count", f"it must be {rule}")
        if self.n_expert_groups > 1:
            if self.n_expert % self.n_expert_groups:
                raise keys.error(
                    "expert_group_count", f"it must divide expert_count = {self.n_expert}"
                )
            if not 0 < self.n_group_used < self.n_expert_groups:
                raise keys.error(
                    "expert_group_used_count",
                    f"it must be from 1 to expert_group_count - 1 = {self.n_expert_groups - 1}",
                )

    def _load_heads(self, keys: Keys) -> None:
        n = self.n_layer_all
        self._n_head = keys.uints("attention.head_count", n, 0)
        given = keys.has("attention.head_count_kv")
        self._n_head_kv = keys.uints("attention.head_count_kv", n) if given else self._n_head
        self.n_embd_head_k = self.n_embd_head_v = 0
        if not self._n_head[0]:  # no attention at all
            return
        for heads, heads_kv in zip(self._n_head, self._n_head_kv, strict=True):
            if heads_kv and heads % heads_kv:
                key = "head_count_kv" if given else "head_count"
                raise keys.error(f"attention.{key}", f"it must divide head_count = {heads}")
        both = keys.has("attention.key_length") and keys.has("attention.value_length")
        if not both and self.n_embd % self._n_head[0]:
            raise keys.error(
                "attention.head_count",
                f"it must divide embedding_length = {self.n_embd} when key_length or value_length "
                f"is missing",
            )
        size = self.n_embd // self._n_head[0]
        self.n_embd_head_k = keys.uint("attention.key_length", size)
        self.n_embd_head_v = keys.uint("attention.value_length", size)
        for key, n in (("key", self.n_embd_head_k), ("value", self.n_embd_head_v)):
            if n == 0:
                raise keys.error(f"attention.{key}_length", "it must be at least 1")

    def _load_rope(self, keys: Keys) -> None:
        self.n_rot = keys.uint("rope.dimension_count", self.n_embd_head_k)
        if self.n_rot % 2:
            raise keys.error("rope.dimension_count", "it must be even")
        turns = self.rope_type != ROPE_NONE and self.n_embd_head_k > 0
        if turns and not 0 < self.n_rot <= self.n_embd_head_k:
            raise keys.error(
                "rope.dimension_count", f"it must be from 2 to the head size {self.n_embd_head_k}"
            )
        self.rope_freq_base_train = keys.number("rope.freq_base", 10000.0)
        if self.rope_freq_base_train <= 0:
            raise keys.error("rope.freq_base", "it must be positive")
        self.rope_scaling_type = keys.text("rope.scaling.type", "linear")
        if self.rope_scaling_type not in ROPE_SCALINGS:
            raise keys.error("rope.scaling.type", f"known are: {', '.join(ROPE_SCALINGS)}")
        key = "scaling.factor" if keys.has("rope.scaling.factor") else "scale_linear"
        factor = keys.number(f"rope.{key}", 0.0)
        if factor < 0:
            raise keys.error(f"rope.{key}", "it must not be negative")
        self.rope_freq_scale_train = 1.0 / factor if factor else 1.0
        self.n_ctx_orig_yarn = keys.uint("rope.scaling.original_context_length", self.n_ctx_train)
        self.rope_attn_factor = keys.number("rope.scaling.attn_factor", 1.0)
        self.rope_yarn_log_mul = 0.0
        self.rope_yarn_mscale = 1.0

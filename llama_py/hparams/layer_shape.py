"""Shape parameters of layers: heads, head sizes, RoPE, window and feed-forward size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

# ggml's RoPE modes
ROPE_NONE, ROPE_NORMAL, ROPE_NEOX, ROPE_MROPE, ROPE_IMROPE = -1, 0, 2, 8, 40

WindowKind = Literal["standard", "chunked", "symmetric"]
# Layers with non-causal attention (llama_non_causal_type): all, or layers with windows; "swa_full":
# all, and in layers with windows the tokens of a ubatch see each other at any distance
NonCausal = Literal["all", "swa_only", "swa_full"]


@dataclass(frozen=True, slots=True)
class Window:
    """Sliding window: the tokens that a token attends to, itself included
    (llama_hparams::is_masked_swa).

    standard   the last `size` tokens
    chunked    the tokens of the same chunk of `size`
    symmetric  the tokens at a distance of up to size / 2, before and after
    """

    size: int
    kind: WindowKind = "standard"

    def hides(self, p0: Any, p1: Any) -> Any:
        """Return True if a token at p1 cannot see position p0; for numbers or arrays."""
        if self.kind == "chunked":
            return p0 < p1 // self.size * self.size
        if self.kind == "symmetric":
            return abs(p1 - p0) > self.size // 2
        return p1 - p0 >= self.size


@dataclass(frozen=True, slots=True)
class Rope:
    """RoPE parameters of a layer.

    type       ggml's mode
    n_rot      rotated dimensions, from `offset` on
    freq_base, freq_scale   as trained
    sections   dimension pairs of each position axis, if there are several
    fixed      the context's frequencies do not apply
    yarn       the context's YaRN does
    plain      no other parameter of YaRN applies either
    rounded    YaRN's bounds are rounded to whole pairs, like in ggml
    """

    type: int
    n_rot: int
    freq_base: float = 10000.0
    freq_scale: float = 1.0
    sections: tuple[int, ...] = (0, 0, 0, 0)
    offset: int = 0
    fixed: bool = False
    yarn: bool = True
    plain: bool = False
    rounded: bool = True


def unturned_pairs(sections: Sequence[int], n_rot: int) -> list[int]:
    """Return dimension pairs that interleaved sections leave to the fourth axis (ggml_rope_multi
    with GGML_ROPE_TYPE_IMROPE)."""
    size = sum(sections)
    return [i for i in range(n_rot // 2) if i % size >= 3 * sections[(i % size) % 3]]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer.

    n_head, n_head_kv   query heads, and key/value heads
    n_embd_head_k, n_embd_head_v   dimensions of a key (and query), and of a value
    n_ff       hidden size of the dense feed-forward
    n_expert_used   experts per token
    rope       None: no RoPE in this layer
    window     None: a token sees all tokens before it
    recurrent  stores a state in place of keys and values
    """

    n_head: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    n_ff: int
    n_expert_used: int = 0
    rope: Rope | None = None
    window: Window | None = None
    recurrent: bool = False

    @property
    def n_embd_q(self) -> int:
        """Dimensions of the queries of all heads."""
        return self.n_embd_head_k * self.n_head

    @property
    def n_embd_k_gqa(self) -> int:
        """Channels of the keys of all heads."""
        return self.n_embd_head_k * self.n_head_kv

    @property
    def n_embd_v_gqa(self) -> int:
        """Channels of the values of all heads."""
        return self.n_embd_head_v * self.n_head_kv

    @property
    def n_embd_v_out(self) -> int:
        """Dimensions of the attention result before its projection."""
        return self.n_embd_head_v * self.n_head

"""Specifications of a layer's data of past tokens: a model returns any of these per layer.

(KVCacheSpec(8, 128, 128),)                      attention
(KVCacheSpec(1, 576, 0),)                        latent attention: values are part of the keys
(KVCacheSpec(8, 64, 64, window=Window(4096)),)   attention to the last 4096 tokens
(StateSpec(n_embd_r, n_embd_s),)                 a recurrent layer
(KVCacheSpec(...), StateSpec(...))               both in one layer
(SameAs(19),)                                    the data of layer 19
(KVCacheSpec(...), Index(128))                   additional keys for an indexer
(StateSpec(...), Tokens())                       a state and the token ids
(KVCacheSpec(...), Compressed("csa", 4, 128))    one more key for every four tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.hparams.layer_shape import Rope, Window

BASE, INDEX = "kv", "index"  # caches of layers without a window, and of indexers' keys


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """Keys and values of each token.

    n_embd_head_v  0: the values are the beginning of the keys
    rope           rotation of the keys, which a position change continues
    part           index of the device that has these heads, if devices share the layer; else None
    copied         each of these devices has all heads
    apart          each sequence has separate cells, regardless of the context
    rotated        rotate by a Hadamard matrix, regardless of the cache type
    """

    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    window: Window | None = None
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False
    apart: bool = False
    rotated: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """Additional key per token for an indexer that selects cells; part and copied like KVCacheSpec.

    rotated  rotate by a Hadamard matrix, regardless of the cache type
    pooled   keys are chosen by blocks of positions, which sequences that share some of
             their cells do not share
    kpool    number of consecutive tokens chosen together, by one key in the row of the last
             token; 0: tokens are chosen separately
    by_order  tokens are consecutive in their order, even if their positions are not
    """

    n_embd_head: int
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False
    rotated: bool = True
    pooled: bool = False
    kpool: int = 0
    by_order: bool = False


@dataclass(frozen=True, slots=True)
class StateSpec:
    """n_embd_r floats of convolution state and n_embd_s of recurrent state, per sequence.

    n_embd_p   floats of a second convolution's state
    r_sections, s_sections   sizes of their consecutive sections: if devices share the layer, each
                             has a part of every section. (): a single section
    part                     like KVCacheSpec
    """

    n_embd_r: int
    n_embd_s: int
    r_sections: tuple[int, ...] = ()
    s_sections: tuple[int, ...] = ()
    part: int | None = None
    n_embd_p: int = 0

    @property
    def n_embd_states(self) -> int:
        """Number of floats per sequence."""
        return self.n_embd_r + self.n_embd_s + self.n_embd_p


@dataclass(frozen=True, slots=True)
class CompressedSpec:
    """One key per `ratio` tokens, and the state of the tokens since the last one.

    kind     name of the type; its layers have the same sizes
    overlap  keys also include the `ratio` tokens before their own
    rotated  rotate by a Hadamard matrix, regardless of the cache type
    """

    kind: str
    ratio: int
    n_embd_head: int
    overlap: bool = False
    rotated: bool = False

    @property
    def n_tokens(self) -> int:
        """Number of tokens in a key."""
        return 2 * self.ratio if self.overlap else self.ratio

    @property
    def n_embd_state(self) -> int:
        """Dimensions of a token's state; its scores have the same number."""
        return 2 * self.n_embd_head if self.overlap else self.n_embd_head

    @property
    def n_embd_states(self) -> int:
        """All of a sequence."""
        return 2 * self.n_tokens * self.n_embd_state


@dataclass(frozen=True, slots=True)
class SameAs:
    """The keys and values of another layer."""

    il: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token of each cell, in the cache of full-attention layers."""


MemorySpec = KVCacheSpec | Index | StateSpec | CompressedSpec | SameAs | Tokens
MemorySpecs = tuple[MemorySpec, ...]

if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__,
        Compressed="CompressedSpec",
        KeysValues="KVCacheSpec",
        State="StateSpec",
        Keeps="MemorySpec",
        Kept="MemorySpecs",
    )

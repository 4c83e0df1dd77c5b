"""Specifications of the data a layer keeps of past tokens: a model returns any of these per layer.

(KeysValues(8, 128, 128),)                      attention
(KeysValues(1, 576, 0),)                        latent attention: values are part of the keys
(KeysValues(8, 64, 64, window=Window(4096)),)   attention to the last 4096 tokens
(State(n_embd_r, n_embd_s),)                    a recurrent layer
(KeysValues(...), State(...))                   both in one layer
(SameAs(19),)                                   what layer 19 keeps
(KeysValues(...), Index(128))                   keys of an indexer beside its own
(State(...), Tokens())                          the tokens themselves beside a state
(KeysValues(...), Compressed("csa", 4, 128))    one more key for every four tokens
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.hparams.geometry import Rope, Window

BASE, INDEX = "kv", "index"  # the caches of layers that see everything, and of indexers' keys


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys and values of each token.

    n_embd_head_v  0: the values are the beginning of the keys
    rope           how the keys were turned, so that they can be turned on
    part           of the devices that share the layer, the one that has these heads; None: all
    copied         they have all of it each, and the same
    apart          each sequence has cells of its own, whatever the context says
    rotated        by a Hadamard matrix, whatever the type of the cache
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
    """One more key per token, by which an indexer chooses cells; part and copied as above.

    rotated  by a Hadamard matrix, whatever the type of the cache
    pooled   keys are chosen by blocks of positions, which sequences that share some of
             their cells do not share
    kpool    number of consecutive tokens chosen together, by a key that is stored in the row
             of the last; 0: each by itself
    """

    n_embd_head: int
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False
    rotated: bool = True
    pooled: bool = False
    kpool: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """n_embd_r floats of convolution state and n_embd_s of recurrent state, per sequence.

    n_embd_p   floats of a second convolution's state
    r_sections, s_sections   what lies one after another in them: of devices that share the layer
                             each has some of every section. (): it is all of a kind
    part                     as above
    """

    n_embd_r: int
    n_embd_s: int
    r_sections: tuple[int, ...] = ()
    s_sections: tuple[int, ...] = ()
    part: int | None = None
    n_embd_p: int = 0

    @property
    def n_embd_states(self) -> int:
        """All of a sequence."""
        return self.n_embd_r + self.n_embd_s + self.n_embd_p


@dataclass(frozen=True, slots=True)
class Compressed:
    """One key per `ratio` tokens, and the state of the tokens since the last one.

    kind     a name; layers of one kind have the same sizes
    overlap  keys are also made of the `ratio` tokens before their own
    rotated  by a Hadamard matrix, whatever the type of the cache
    """

    kind: str
    ratio: int
    n_embd_head: int
    overlap: bool = False
    rotated: bool = False

    @property
    def n_tokens(self) -> int:
        """Tokens that a key is made of."""
        return 2 * self.ratio if self.overlap else self.ratio

    @property
    def n_embd_state(self) -> int:
        """Channels that are kept of each of them, and as many of their scores."""
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


Keeps = KeysValues | Index | State | Compressed | SameAs | Tokens
Kept = tuple[Keeps, ...]

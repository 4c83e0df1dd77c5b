"""What a layer keeps of the tokens it has seen: a model says any of these for each layer, or none.

(KeysValues(8, 128, 128),)                      attention
(KeysValues(1, 576, 0),)                        latent attention: values are part of the keys
(KeysValues(8, 64, 64, window=Window(4096)),)   attention to the last 4096 tokens
(State(n_embd_r, n_embd_s),)                    a recurrent layer
(KeysValues(...), State(...))                   both in one layer
(SameAs(19),)                                   what layer 19 keeps
(KeysValues(...), Index(128))                   keys of an indexer beside its own
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.geometry import Rope, Window

BASE, INDEX = "kv", "index"  # the caches of layers that see everything, and of indexers' keys


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys and values of each token.

    n_embd_head_v  0: the values are the beginning of the keys
    rope           how the keys were turned, so that they can be turned on
    part           of the devices that share the layer, the one that has these heads; None: all
    copied         they have all of it each, and the same
    """

    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    window: Window | None = None
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """One more key for each token, by which an indexer chooses what is attended to; part and
    copied as above.

    rotated  by a Hadamard matrix, whatever the type of the cache
    """

    n_embd_head: int
    rope: Rope | None = None
    part: int | None = None
    copied: bool = False
    rotated: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """n_embd_r floats of convolution state and n_embd_s of recurrent state, per sequence.

    r_sections, s_sections   what lies one after another in them: of devices that share the layer
                             each has some of every section. (): it is all of a kind
    part                     as above
    """

    n_embd_r: int
    n_embd_s: int
    r_sections: tuple[int, ...] = ()
    s_sections: tuple[int, ...] = ()
    part: int | None = None


@dataclass(frozen=True, slots=True)
class SameAs:
    """The keys and values of another layer."""

    il: int


Keeps = KeysValues | Index | State | SameAs
Kept = tuple[Keeps, ...]

"""Facts about an architecture for other rooms than the graph builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizeRules:
    """Rules by which llama.cpp chooses types for an architecture's matrices.

    low_mix         down and output projections get fewer bits than others'
    more_stacks     other tensors than matrices of experts have three dimensions
    never, least_q8 parts of names of tensors that keep their type, or get 8 bits or more
    is_70b          True if it treats a model of (layers, heads, key heads) as 70B, with
                    more bits for values
    counted_layers  number of layers it counts, from the file's layers and the NextN layers
    """

    low_mix: bool = False
    more_stacks: bool = False
    never: tuple[str, ...] = ()
    least_q8: tuple[str, ...] = ()
    is_70b: Callable[[int, int, int], bool] = lambda n_layer, n_head, n_head_kv: False
    counted_layers: Callable[[int, int], int] = lambda n_layer, n_nextn: n_layer


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Block of tokens that a model drafts at once.

    size     tokens of a block
    first    position of the first draft token: 0, or 1 if the last token of the text is input
             only
    chained  each token is chosen by the one before it
    sure     `h_nextn` has the confidence of each token
    n_pairs  `h_nextn` has this many candidates per token, with scores of pairs
    anchored  blocks are whole, and need the state before them (input `embd`)
    """

    size: int
    first: int = 1
    chained: bool = False
    sure: bool = False
    n_pairs: int = 0
    anchored: bool = False


@dataclass(frozen=True, slots=True)
class DraftRules:
    """Rules of a draft-only model.

    way               the draft method that runs it; "" for a model that works alone
    target_layers     layers of the other model with the inputs that it needs
    block             block of tokens that it drafts at once, if it does
    shares_memory     it attends to the other model's cache (`Architecture.reads`)
    continues_states  each token has an input hidden state
    """

    way: str = ""
    target_layers: tuple[int, ...] = ()
    block: DraftBlock | None = None
    shares_memory: bool = False
    continues_states: bool = False


@dataclass(frozen=True, slots=True)
class Diffusion:
    """Parameters of generation by unmasking (llama_py.text.diffusion).

    mask    the special token for unwritten positions
    shifts  a position's logits belong to the token before, unless the file specifies otherwise
    """

    mask: str = "mask"
    shifts: bool = True

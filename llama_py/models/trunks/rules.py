"""Facts about an architecture for other rooms than the graph builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizeRules:
    """Rules by which llama.cpp chooses types for an architecture's matrices.

    low_mix         down and output projections get fewer bits than others'
    more_stacks     three-dimensional are not the matrices of experts alone
    never, least_q8 parts of names of tensors that keep their type, or get 8 bits at least
    is_70b          True if it treats a model of (layers, heads, key heads) as 70B, whose
                    values get more bits
    counted_layers  number of layers it counts, from all of the file's and the NextN layers
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
    first    position of the first draft token: 0, or 1 where the last token of the text is only
             looked at
    chained  each token is chosen by the one before it
    sure     `h_nextn` has the confidence of each token
    n_pairs  `h_nextn` has this many candidates per token, with scores of pairs
    """

    size: int
    first: int = 1
    chained: bool = False
    sure: bool = False
    n_pairs: int = 0


@dataclass(frozen=True, slots=True)
class DraftRules:
    """Rules of a draft-only model.

    way               the draft method that runs it; "" for a model that works alone
    target_layers     layers of the other model whose input it reads
    block             block of tokens that it drafts at once, if it does
    shares_memory     it attends to what the other model keeps (`Architecture.reads`)
    continues_states  each of its tokens comes with a hidden state
    """

    way: str = ""
    target_layers: tuple[int, ...] = ()
    block: DraftBlock | None = None
    shares_memory: bool = False
    continues_states: bool = False


@dataclass(frozen=True, slots=True)
class Diffusion:
    """Parameters of generation by unmasking (llama_py.text.diffusion).

    mask    the special token that stands for what is not yet written
    shifts  a position's logits are those of the token before, unless the file says otherwise
    """

    mask: str = "mask"
    shifts: bool = True

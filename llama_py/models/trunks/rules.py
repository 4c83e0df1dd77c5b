"""Facts of an architecture that other rooms read than the one that builds its graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizeRules:
    """How llama.cpp chooses types for the matrices of an architecture.

    low_mix         down and output projections get fewer bits than others'
    more_stacks     three-dimensional are not the matrices of experts alone
    never, least_q8 parts of names of tensors that keep their type, or get 8 bits at least
    is_70b          whether it calls a model of so many (layers, heads, heads of keys) 70B, whose
                    values get more bits
    counted_layers  how many layers it counts, of all that the file says and of these NextN layers
    """

    low_mix: bool = False
    more_stacks: bool = False
    never: tuple[str, ...] = ()
    least_q8: tuple[str, ...] = ()
    is_70b: Callable[[int, int, int], bool] = lambda n_layer, n_head, n_head_kv: False
    counted_layers: Callable[[int, int], int] = lambda n_layer, n_nextn: n_layer


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """What a model drafts at once.

    size     tokens of a block
    first    the first position that is a guess: 0, or 1 where the last token of the text is only
             looked at
    chained  each token is chosen by the one before it
    sure     it tells how sure it is of each, in `h_nextn`
    n_pairs  it gives so many candidates of each, with scores of pairs, in `h_nextn`
    """

    size: int
    first: int = 1
    chained: bool = False
    sure: bool = False
    n_pairs: int = 0


@dataclass(frozen=True, slots=True)
class DraftRules:
    """How a model drafts that can only draft for another.

    way               the way to draft that runs it; "" for a model that answers by itself
    target_layers     the layers of the other model whose input it reads
    block             what it drafts at once, if it is a block
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
    """How a model writes by unmasking (llama_py.text.diffusion).

    mask    the special token that stands for what is not yet written
    shifts  a position's logits are those of the token before, unless the file says otherwise
    """

    mask: str = "mask"
    shifts: bool = True

"""Inputs and results that all variants of the gated delta net share."""

from __future__ import annotations

from typing import NamedTuple

from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.variants import SLOTS, Variant

# fused: as one op. Otherwise, one token is computed by the rule as defined, and many tokens
#   chunked: in chunks, each a triangular system (arXiv 2412.06464);
#   autoregressive: each by that rule, so that graphs grow with n_ubatch;
#   blocks: in chunks of 64 for any gates, with scores combined from 4 x 4 blocks.
# slots: as another op, with ik_llama.cpp's layout of states (blocks/slots.py).
DELTA_NET = Variant(
    "delta_net",
    ("fused", "chunked", "autoregressive", "blocks", SLOTS),
    "how gated delta nets are computed",
    go_back=(SLOTS,),
)


class Delta(NamedTuple):
    """Inputs of a delta net, without its state. S is the size of a head, H value heads, H_k key
    heads, T tokens of each of B sequences."""

    q: Tensor  # [S, H_k, T, B]
    k: Tensor  # [S, H_k, T, B]
    v: Tensor  # [S, H, T, B]
    gate: Tensor  # [1 or S, H, T, B] log of the decay, per head or dimension
    beta: Tensor  # [1, H, T, B]


Outcome = tuple[Tensor, Tensor]  # outputs [S, H, T, B], new state [S, S, H, B]


class Rule:
    """One way to build a delta net in a layer of a graph."""

    def __init__(self, g: GraphBuilder, il: int) -> None:
        self.builder, self.il = g, il

    def cb(self, t: Tensor, name: str) -> Tensor:
        return self.builder.cb(t, name, self.il)

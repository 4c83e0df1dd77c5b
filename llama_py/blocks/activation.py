"""Activations with their names in the graph (llama-graph.cpp:build_ffn)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ggml_py.ops import (
    geglu,
    geglu_split,
    gelu,
    reglu,
    reglu_split,
    relu,
    silu,
    sqr,
    swiglu,
    swiglu_clamp,
    swiglu_oai,
    swiglu_split,
)
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Activation:
    """A function with its names in the graph, and its gated form act(gate) * up.

    halves  the function takes gate and up in one tensor, and gives half of it
    then    what is done to its result, with a name of its own
    """

    name: str
    function: Callable[[Tensor], Tensor]
    gated_name: str = ""
    gated: Callable[[Tensor, Tensor], Tensor] | None = None
    halves: bool = False
    then: tuple[str, Callable[[Tensor], Tensor]] | None = None


SILU = Activation("silu", silu, "swiglu", swiglu_split)
GELU = Activation("gelu", gelu, "geglu", geglu_split)
RELU = Activation("relu", relu, "reglu", reglu_split)
RELU_SQR = Activation("relu", relu, then=("sqr(relu)", sqr))
SWIGLU_OAI = Activation(
    "silu", silu, "swiglu_oai", lambda gate, up: swiglu_oai(gate, up, 1.702, 7.0)
)
GEGLU = Activation("geglu", geglu, halves=True)
REGLU = Activation("reglu", reglu, halves=True)
SWIGLU = Activation("swiglu", swiglu, halves=True)


def clamped_silu(limit: float) -> Activation:
    """SiLU of a gate that is at most `limit`, times what is from -limit to limit; 0: no limit."""
    if limit <= 1e-6:
        return SILU
    gated = partial(swiglu_clamp, limit=limit)
    return Activation("silu", silu, "swiglu_limited", gated)

"""Activations with their names in the graph (llama-graph.cpp:build_ffn)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ggml_py.ops import (
    clamp,
    geglu,
    geglu_erf,
    geglu_split,
    gelu,
    mul,
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
from llama_py.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class Activation:
    """A function with its names in the graph, and its gated form act(gate) * up.

    halves  the function takes gate and up in one tensor, and returns half its rows
    then    name of a further function, and the function, for the result
    """

    name: str
    function: Callable[[Tensor], Tensor]
    gated_name: str = ""
    gated: Callable[[Tensor, Tensor], Tensor] | None = None
    halves: bool = False
    then: tuple[str, Callable[[Tensor], Tensor]] | None = None

    def times(self, g: GraphBuilder, gate: Tensor, up: Tensor, stem: str, il: int) -> Tensor:
        """Return act(gate) * up, both [n, ...], named `stem` and the gated name."""
        assert self.gated is not None
        return g.cb(self.gated(gate, up), f"{stem}{self.gated_name}", il)


@dataclass(frozen=True, slots=True)
class LimitedSilu(Activation):
    """SiLU of a gate clamped to at most `limit`, times an `up` clamped to -limit..limit."""

    limit: float = 0.0

    def times(self, g: GraphBuilder, gate: Tensor, up: Tensor, stem: str, il: int) -> Tensor:
        up = g.cb(clamp(up, -self.limit, self.limit), f"{stem}up_clamped", il)
        gate = g.cb(silu(gate), f"{stem}silu", il)
        gate = g.cb(clamp(gate, -math.inf, self.limit), f"{stem}silu_clamped", il)
        return g.cb(mul(gate, up), f"{stem}swiglu_limited", il)


SILU = Activation("silu", silu, "swiglu", swiglu_split)
GELU = Activation("gelu", gelu, "geglu", geglu_split)
RELU = Activation("relu", relu, "reglu", reglu_split)
RELU_SQR = Activation("relu", relu, then=("sqr(relu)", sqr))
SWIGLU_OAI = Activation(
    "silu", silu, "swiglu_oai", lambda gate, up: swiglu_oai(gate, up, 1.702, 7.0)
)
GEGLU = Activation("geglu", geglu, halves=True)
GEGLU_ERF = Activation("geglu_erf", geglu_erf, halves=True)
REGLU = Activation("reglu", reglu, halves=True)
SWIGLU = Activation("swiglu", swiglu, halves=True)


def limited_silu(limit: float) -> Activation:
    """Return SiLU with result and second factor clamped to `limit`; 0: plain SiLU."""
    return LimitedSilu("silu", silu, limit=limit) if limit > 1e-6 else SILU


def clamped_silu(limit: float) -> Activation:
    """Return SiLU of a clamped gate, times a factor in [-limit, limit]; 0: plain SiLU."""
    if limit <= 1e-6:
        return SILU
    gated = partial(swiglu_clamp, limit=limit)
    return Activation("silu", silu, "swiglu_limited", gated)

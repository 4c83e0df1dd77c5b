"""A bounded SiLU, and its feed-forward (models/kimi-k3.cpp:kimi_k3_situ)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import mul, scale, sigmoid, tanh
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights


@dataclass(frozen=True, slots=True)
class Situ:
    """A SiLU with a bound: beta tanh(gate / beta) sigmoid(gate), times `up`, bounded too if
    linear_beta is positive."""

    beta: float
    linear_beta: float

    def gate(self, gate: Tensor) -> Tensor:
        return mul(_softcap(gate, self.beta), sigmoid(gate))

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        gate = self.gate(gate)
        return mul(gate, _softcap(up, self.linear_beta) if self.linear_beta > 0 else up)


def _softcap(x: Tensor, bound: float) -> Tensor:
    return scale(tanh(scale(x, 1.0 / bound)), bound)


class SituFeedForward:
    parts_keep = None

    def __init__(
        self, w: Weights, n_embd: int, n_ff: int, situ: Situ, kind: str, name: str
    ) -> None:
        self.situ, self.name = situ, name
        self.gate = w.linear(f"ffn_gate{kind}", n_embd, n_ff, scaled=False)
        self.up = w.linear(f"ffn_up{kind}", n_embd, n_ff, scaled=False)
        self.down = w.linear(f"ffn_down{kind}", n_ff, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        cur = self.down(g, self.situ(self.gate(g, cur), self.up(g, cur)))
        return g.cb(cur, self.name, il)

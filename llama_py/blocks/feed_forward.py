"""The dense feed-forward (llama-graph.cpp:build_ffn)."""

from __future__ import annotations

from typing import Literal

from ggml_py._moved import Former, adopt
from ggml_py.ops import add, mul
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SILU, Activation
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.weights import Bias, Weights


class FeedForward:
    """down(act(gate x) * up x), or down(act(up x)) without a gate.

    stem  names of the matrices in a file
    """

    parts_keep = None
    stem = "ffn_{}"

    def __init__(
        self,
        w: Weights,
        n_embd: int,
        n_ff: int,
        *,
        act: Activation = SILU,
        gated: bool = True,
        bias: Bias = False,
        scaled: bool | Literal["down"] = True,
        name: str = "ffn_out",
    ) -> None:
        """Declare the weights; `scaled`: see `Weights.linear`, "down": of ffn_down only."""
        n_up, both = 2 * n_ff if act.halves else n_ff, scaled is True
        self.gate: Linear | None = None
        if gated and not act.halves:
            self.gate = w.linear(self.stem.format("gate"), n_embd, n_ff, bias=bias, scaled=both)
        halves = (n_ff, n_ff) if act.halves else ()
        up, down = self.stem.format("up"), self.stem.format("down")
        self.up = w.linear(up, n_embd, n_up, bias=bias, scaled=both, sections=halves)
        self.down = w.linear(down, n_ff, n_embd, bias=bias, scaled=bool(scaled))
        self.act, self.name = act, name

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the feed-forward network: [n_embd, n] -> same shape."""
        return self.project_down(g, self.compute_hidden(g, cur, il), il)

    def compute_hidden(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Compute the activated hidden layer: [n_embd, n] -> [n_ff, n]."""
        up = self._part(g, self.up, cur, "ffn_up", il)
        if self.gate is None:
            cur = self._activate(g, up, il)
        else:
            gate = self._part(g, self.gate, cur, "ffn_gate", il)
            cur = self.act.times(g, gate, up, "ffn_", il)
        return cur

    def project_down(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Project the hidden layer back: [n_ff, n] -> [n_embd, n]."""
        down = self.down
        cur = self._product(g, down, x)
        if down.bias is not None:
            cur = add(g.cb(cur, "ffn_down", il), down.bias)
        if down.scale is not None:
            cur = g.cb(self._scale(g, down, cur, x), "ffn_down_s", il)
        return g.cb(cur, self.name, il) if self.name else cur

    def _activate(self, g: GraphBuilder, up: Tensor, il: int) -> Tensor:
        cur = g.cb(self.act.function(up), f"ffn_{self.act.name}", il)
        if self.act.then is not None:
            name, function = self.act.then
            cur = g.cb(function(cur), f"ffn_{name}", il)
        return cur

    def _part(self, g: GraphBuilder, w: Linear, cur: Tensor, name: str, il: int) -> Tensor:
        """Multiply by one matrix, then add its bias and apply its scale, in this order."""
        x = cur
        cur = g.cb(self._product(g, w, x), name, il)
        if w.bias is not None:
            cur = g.cb(add(cur, w.bias), f"{name}_b", il)
        if w.scale is not None:
            cur = g.cb(self._scale(g, w, cur, x), f"{name}_s", il)
        return cur

    def _product(self, g: GraphBuilder, w: Linear, x: Tensor) -> Tensor:
        """Multiply, and add adapters if there is no scale, which would apply to both."""
        res = w.product(g, x)
        return g.params.loras.add_terms(res, w.weight, x) if w.scale is None else res

    def _scale(self, g: GraphBuilder, w: Linear, cur: Tensor, x: Tensor) -> Tensor:
        assert w.scale is not None
        return g.params.loras.add_terms(mul(cur, w.scale), w.weight, x)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        adopt(cls)

    hidden = Former("compute_hidden")
    projected = Former("project_down")


class SharedFeedForward(FeedForward):
    """The expert that processes every token."""

    parts_keep = None
    stem = "ffn_{}_shexp"

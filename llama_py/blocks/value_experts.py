"""Values of attention from experts."""

from __future__ import annotations

import math

from ggml_py.ops import (
    add,
    argsort_top_k,
    clamp,
    cont,
    div,
    get_rows,
    mul,
    reshape,
    scale,
    silu,
    sum_rows,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.experts import F16_SMALLEST_NORMAL, GATING, Weighing
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights


class ValueExperts:
    """The weighted sum of each token's experts, silu(W x) each: the values of all heads."""

    def __init__(
        self,
        w: Weights,
        sizes: tuple[int, int],
        experts: tuple[int, int],
        gating: str,
        weighing: Weighing,
    ) -> None:
        """Declare the weights.

        Args:
            w: Tensors of the layer.
            sizes: Dimensions of the input and of the values of all heads.
            experts: Number of experts, and number per token.
            gating: A key of GATING.
            weighing: Weights of the experts' results.
        """
        (n_embd, n_values), (self.n_expert, self.n_used) = sizes, experts
        self.gating, self.weighing = gating, weighing
        self.router = w.linear("attn_v_gate", n_embd, self.n_expert, scaled=False)
        self.choice_bias = w.optional_tensor("attn_v_gate.bias", self.n_expert)
        self.matrices = w.experts("attn_v_exps", n_embd, n_values, self.n_expert, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Route tokens and sum their experts: [n_embd, n_tokens] -> [n_values, 1, n_tokens]."""
        n_embd, n_tokens = cur.ne[:2]
        probs = GATING[self.gating](g.cb(self.router.matmul(g, cur), "v_moe_logits", il))
        choice = probs
        if self.choice_bias is not None:
            choice = g.cb(add(probs, self.choice_bias), "v_moe_probs_biased", il)
        ids = argsort_top_k(choice, self.n_used)
        assert ids.src[0] is not None
        g.cb(ids.src[0], "v_moe_argsort", il)
        g.cb(ids, "v_moe_topk", il)
        values = silu(self.matrices(g, reshape(cur, n_embd, 1, n_tokens), ids, "", il))
        probs = g.cb(reshape(probs, 1, self.n_expert, n_tokens), "v_moe_probs", il)
        weights = g.cb(self._weigh(g, get_rows(probs, ids), il), "v_moe_weights", il)
        return self._sum(g, g.expand(g.cb(mul(values, weights), "v_moe_weighted", il)), il)

    def _weigh(self, g: GraphBuilder, weights: Tensor, il: int) -> Tensor:
        """Normalize and scale probabilities [1, n_used, n_tokens] of chosen experts."""
        if self.weighing.normed:
            n_used, n_tokens = weights.ne[1:3]
            weights = reshape(weights, n_used, n_tokens)
            weights = div(weights, clamp(sum_rows(weights), F16_SMALLEST_NORMAL, math.inf))
            weights = g.cb(reshape(weights, 1, n_used, n_tokens), "v_moe_weights_norm", il)
        factor = self.weighing.scale
        return weights if factor in (0.0, 1.0) else scale(weights, factor)

    def _sum(self, g: GraphBuilder, values: Tensor, il: int) -> Tensor:
        """Sum experts, views first: [n_values, n_used, n_tokens] -> [n_values, 1, n_tokens]."""
        n_values, n_used, n_tokens, _ = values.ne
        rows = n_values, n_values * n_used
        one = [
            g.expand(view(values, (n_values, 1, n_tokens), rows, i * n_values))
            for i in range(n_used)
        ]
        total = one[0]
        for other in one[1:]:
            total = g.expand(add(total, other))
        return g.cb(cont(total) if n_used == 1 else total, "Vcur_routed", il)

"""Mixture of experts (llama-graph.cpp:build_moe_ffn)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ggml_py._moved import Former
from ggml_py.ops import (
    add,
    argsort_top_k,
    clamp,
    cont,
    div,
    fill,
    get_rows,
    mul,
    repeat_4d,
    reshape,
    scale,
    set_rows,
    sigmoid,
    soft_max,
    softplus,
    sqrt,
    sum_rows,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SILU, Activation
from llama_py.blocks.feed_forward import SharedFeedForward
from llama_py.blocks.functions import split
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import ExpertLinear, Linear
from llama_py.hparams import HParams
from llama_py.weights import Bias, Weights

F16_SMALLEST_NORMAL = 6.103515625e-5

# Functions from the router's logits [n_expert, n_tokens] to probabilities.
GATING: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": soft_max,
    "sigmoid": sigmoid,
    "softmax_weight": lambda logits: logits,  # softmax over the chosen experts only
    "sqrt_softplus": lambda logits: sqrt(softplus(logits)),
}
GATING_FUNCS = tuple(GATING)  # llama-hparams.h:llama_expert_gating_func_type, from 1

Optional = Literal["no", "optional", "needed"]

# Scores for choosing experts, if they are not the probabilities; [n_expert, n_tokens] each.
CHOICE: dict[str, Callable[[Tensor], Tensor]] = {
    "logits": lambda logits: logits,
    "sigmoid": sigmoid,
}


@dataclass(frozen=True, slots=True)
class ExpertSet:
    """The matrices of experts in a file.

    n_embd  input dimensions of experts; 0: the model's
    count   number of experts; 0: the model's
    suffix  suffix of the tensors' names
    merged  gate and up may be one tensor
    gate    presence of a gate matrix
    biased  matrices have biases
    scaled  matrices may have scales
    """

    n_embd: int = 0
    count: int = 0
    suffix: str = "exps"
    merged: bool = False
    gate: Optional = "needed"
    biased: Bias = False
    scaled: bool = True


@dataclass(frozen=True, slots=True)
class Routing:
    """Rules of the router for choosing experts.

    gating     function from the router's logits to probabilities, a key of GATING
    choose_by  key of CHOICE, for the logits; "": the best probabilities are chosen
    bias       presence of a tensor that is added to the probabilities for the choice only
    bias_name  name of this tensor in the file
    router_bias, router_scaled  the router's matrix has a bias, and may have a scale
    """

    gating: str = "softmax"
    choose_by: str = ""
    bias: Optional = "no"
    bias_name: str = "exp_probs_b.bias"
    router_bias: Bias = False
    router_scaled: bool = True


@dataclass(frozen=True, slots=True)
class Weighing:
    """Weights of the chosen experts' results.

    normed  weights are normalized to sum to one
    scale   then multiplied by this, unless it is 0 or 1
    before  weights are applied before the experts, not after
    """

    normed: bool = True
    scale: float = 0.0
    before: bool = False


SCALED, UNSCALED = ExpertSet(), ExpertSet(scaled=False)
SOFTMAX = Routing()
NORMED, UNNORMED = Weighing(), Weighing(normed=False)


class Experts:
    """The weighted sum of each token's experts."""

    parts_keep = None

    def __init__(
        self,
        w: Weights,
        hp: HParams,
        n_ff: int,
        *,
        experts: ExpertSet = SCALED,
        routing: Routing = SOFTMAX,
        weighing: Weighing = NORMED,
        act: Activation = SILU,
        router: Linear | None = None,
    ) -> None:
        """Declare the weights; `router`: linear layer that replaces ffn_gate_inp."""
        self.routing, self.weighing, self.act = routing, weighing, act
        n_expert, n_embd = experts.count or hp.n_expert, experts.n_embd or hp.n_embd
        self.n_expert, self.n_used = n_expert, min(hp.layers[w.il].n_expert_used, n_expert)
        self.n_groups, self.n_group_used = hp.n_expert_groups, hp.n_group_used
        self.router = router or w.linear(
            "ffn_gate_inp",
            hp.n_embd,
            n_expert,
            bias=routing.router_bias,
            scaled=routing.router_scaled,
        )
        if routing.gating == "sqrt_softplus":
            self.router.prec = "f32"  # like build_moe_ffn
        self.probs_bias: Tensor | None = None
        if routing.bias != "no":
            declare = w.tensor if routing.bias == "needed" else w.optional_tensor
            self.probs_bias = declare(routing.bias_name, n_expert)

        def matrices(stem: str, n_in: int, *n_out: int) -> ExpertLinear:
            return w.experts(
                f"ffn_{stem}_{experts.suffix}",
                n_in,
                sum(n_out),
                n_expert,
                bias=experts.biased,
                scaled=experts.scaled,
                sections=n_out if len(n_out) > 1 else (),
            )

        self.gate_up: ExpertLinear | None = None
        self.gate: ExpertLinear | None = None
        self.up: ExpertLinear | None = None
        if experts.merged and w.has("ffn_gate_up_exps.weight"):
            self.gate_up = matrices("gate_up", n_embd, n_ff, n_ff)
        else:
            optional = experts.gate == "optional" and w.has("ffn_gate_exps.weight")
            if experts.gate == "needed" or optional:
                self.gate = matrices("gate", n_embd, n_ff)
            self.up = matrices("up", n_embd, n_ff)
        self.down = matrices("down", n_ff, n_embd)

    def __call__(
        self, g: GraphBuilder, cur: Tensor, il: int, logits: Tensor | None = None
    ) -> Tensor:
        """Route tokens and sum the chosen experts' results: [n_embd, n_tokens] -> same shape.

        logits  [n_expert, n_tokens] of the router, unless it computes them from `cur`"""
        ids, weights = self.choose(g, self.route(g, cur, il) if logits is None else logits, il)
        return self.combine(g, self.compute(g, cur, ids, weights, il), weights, il)

    def choose(self, g: GraphBuilder, logits: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return the chosen experts, I32 [n_used, n_tokens], and weights [1, n_used, n_tokens]."""
        probs, ids = self._select(g, logits, il)
        return ids, g.expand(self._weights(g, probs, ids, il))

    def compute(
        self, g: GraphBuilder, cur: Tensor, ids: Tensor, weights: Tensor, il: int
    ) -> Tensor:
        """Compute each chosen expert's result: [n_embd, n_tokens] -> [n_embd, n_used, n_tokens]."""
        n_embd, n_tokens = cur.ne[:2]
        cur = reshape(cur, n_embd, 1, n_tokens)
        if self.weighing.before:
            cur = mul(repeat_4d(cur, n_embd, self.n_used, n_tokens, 1), weights)
            g.cb(cur, "ffn_moe_weighted", il)
        return self.down(g, self._compute_hidden(g, cur, ids, il), ids, "ffn_moe_down", il)

    def combine(self, g: GraphBuilder, experts: Tensor, weights: Tensor, il: int) -> Tensor:
        """Sum the weighted results: [n_embd, n_used, n_tokens] -> [n_embd, n_tokens]."""
        if not self.weighing.before:
            experts = g.cb(mul(experts, weights), "ffn_moe_weighted", il)
        return self._sum(g, g.expand(experts), il)

    def route(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Compute the router's logits: [n_embd, n_tokens] -> [n_expert, n_tokens]."""
        logits = g.cb(self.router.matmul(g, cur), "ffn_moe_logits", il)
        if self.router.bias is not None:
            logits = g.cb(add(logits, self.router.bias), "ffn_moe_logits_biased", il)
        return logits

    def _select(self, g: GraphBuilder, logits: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Return probabilities [n_expert, n_tokens] and chosen experts I32 [n_used, n_tokens]."""
        probs = selection = g.cb(GATING[self.routing.gating](logits), "ffn_moe_probs", il)
        if self.probs_bias is not None:
            selection = g.cb(add(probs, self.probs_bias), "ffn_moe_probs_biased", il)
        if self.routing.choose_by:
            selection = CHOICE[self.routing.choose_by](logits)
            if selection is not logits:
                g.cb(selection, "ffn_moe_probs_biased", il)
        if self.n_groups > 1 and logits.ne[1] > 0:
            selection = self._mask_groups(g, selection, il)
        selected = argsort_top_k(selection, self.n_used)
        assert selected.src[0] is not None
        g.cb(selected.src[0], "ffn_moe_argsort", il)
        return probs, g.cb(selected, "ffn_moe_topk", il)

    def _mask_groups(self, g: GraphBuilder, selection: Tensor, il: int) -> Tensor:
        """Set experts outside the best groups to -inf: [n_expert, n_tokens] -> same shape.
        A group's score is the sum of its two best experts (DeepSeek-V3)."""
        n_expert, n_tokens = selection.ne[:2]
        groups = reshape(selection, n_expert // self.n_groups, self.n_groups, n_tokens)
        best = argsort_top_k(groups, 2)  # [2, n_groups, n_tokens]
        scores = get_rows(reshape(groups, 1, *groups.ne[:3]), best)  # [1, 2, n_groups, n_tokens]
        scores = sum_rows(reshape(scores, *scores.ne[1:]))  # [1, n_groups, n_tokens]
        scores = reshape(scores, *scores.ne[1:3])
        chosen = g.cb(argsort_top_k(scores, self.n_group_used), "ffn_moe_group_topk", il)
        kept = get_rows(groups, chosen)  # [per_group, n_group_used, n_tokens]
        masked = set_rows(fill(groups, -math.inf), kept, chosen)
        return g.cb(reshape(masked, n_expert, n_tokens), "ffn_moe_probs_masked", il)

    def _weights(self, g: GraphBuilder, probs: Tensor, ids: Tensor, il: int) -> Tensor:
        """Return the weights of the chosen experts: [1, n_used, n_tokens]."""
        n_used, n_tokens = ids.ne[:2]
        probs = reshape(probs, 1, *probs.ne[:2])
        weights = g.cb(get_rows(probs, ids), "ffn_moe_weights", il)
        if self.routing.gating == "softmax_weight":
            weights = soft_max(reshape(weights, n_used, n_tokens))
            weights = g.cb(reshape(weights, 1, n_used, n_tokens), "ffn_moe_weights_softmax", il)
        if self.weighing.normed:
            weights = reshape(weights, n_used, n_tokens)
            total = g.cb(sum_rows(weights), "ffn_moe_weights_sum", il)  # [1, n_tokens]
            total = clamp(total, F16_SMALLEST_NORMAL, math.inf)
            g.cb(total, "ffn_moe_weights_sum_clamped", il)
            weights = g.cb(div(weights, total), "ffn_moe_weights_norm", il)
            weights = reshape(weights, 1, n_used, n_tokens)
        if self.weighing.scale not in (0.0, 1.0):
            weights = g.cb(scale(weights, self.weighing.scale), "ffn_moe_weights_scaled", il)
        return weights

    def _compute_hidden(self, g: GraphBuilder, cur: Tensor, ids: Tensor, il: int) -> Tensor:
        """Compute the hidden layer: [n_embd, 1, n_tokens] -> [n_ff, n_used, n_tokens]."""
        gate: Tensor | None = None
        if self.gate_up is not None:
            both = self.gate_up(g, cur, ids, "ffn_moe_gate_up", il)
            gate, up = split(both, [both.ne[0] // 2] * 2, n_dims=3)
            g.cb(gate, "ffn_moe_gate", il)
            g.cb(up, "ffn_moe_up", il)
        else:
            assert self.up is not None
            up = self.up(g, cur, ids, "ffn_moe_up", il)
            if self.gate is not None:
                gate = self.gate(g, cur, ids, "ffn_moe_gate", il)
        if gate is None:
            return g.cb(self.act.function(up), f"ffn_moe_{self.act.name}", il)
        return self.act.times(g, gate, up, "ffn_moe_", il)

    def _sum(self, g: GraphBuilder, experts: Tensor, il: int) -> Tensor:
        """Sum experts, views first: [n_embd, n_used, n_tokens] -> [n_embd, n_tokens]."""
        n_embd, n_used, n_tokens, _ = experts.ne
        per_token = experts.nb[2] // experts.nb[0]
        one = [
            g.expand(view(experts, (n_embd, n_tokens), (per_token,), i * n_embd))
            for i in range(n_used)
        ]
        total = one[0]
        for expert in one[1:]:
            total = g.expand(add(total, expert))
        # One view alone would not be dense.
        return g.cb(cont(total) if n_used == 1 else total, "ffn_moe_out", il)


class SharedExperts:
    """Experts, and a shared expert that processes every token, optionally with a gate.

    mean  the result is half the sum
    """

    parts_keep = None
    mean = False

    def __init__(
        self,
        w: Weights,
        hp: HParams,
        experts: Experts,
        n_ff: int,
        *,
        gated: bool = False,
        scaled: bool = True,
        name: str = "ffn_out",
        act: Activation = SILU,
    ) -> None:
        """Declare the weights; `gated`: multiply by a sigmoid of the token; `name`: of result."""
        self.experts, self.name = experts, name
        self.gate = w.linear("ffn_gate_inp_shexp", hp.n_embd, 1) if gated else None
        self.shared = SharedFeedForward(
            w, hp.n_embd, n_ff, act=act, scaled=scaled, name="ffn_shexp"
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Add the results of routed and shared experts: [n_embd, n] -> same shape."""
        moe, shared = self.experts(g, cur, il), self.shared(g, cur, il)
        if self.gate is not None:
            gate = g.cb(self.gate(g, cur), "shared_expert_gate", il)
            gate = g.cb(self.activate_gate(gate), "shared_expert_gate_sigmoid", il)  # [1, n_tokens]
            shared = g.cb(mul(shared, gate), "ffn_shexp_gated", il)
        both = add(moe, shared)
        return g.cb(scale(both, 0.5) if self.mean else both, self.name, il)

    def activate_gate(self, gate: Tensor) -> Tensor:
        """Return the shared expert's factor: the sigmoid of its gate."""
        return sigmoid(gate)

    opened = Former("activate_gate")

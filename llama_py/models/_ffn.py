"""Feed-forward blocks: dense and mixture of experts (llama-graph.cpp:build_ffn, build_moe_ffn)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ggml_py.ops import (
    add,
    add_id,
    argsort_top_k,
    clamp,
    cont,
    div,
    fill,
    geglu_split,
    gelu,
    get_rows,
    mul,
    reglu_split,
    relu,
    reshape,
    scale,
    set_rows,
    sigmoid,
    silu,
    soft_max,
    softplus,
    sqrt,
    sum_rows,
    swiglu_oai,
    swiglu_split,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.models._graph import GraphContext
from llama_py.weights import Layer, Linear

F16_SMALLEST_NORMAL = 6.103515625e-5


@dataclass(frozen=True, slots=True)
class Activation:
    """A function with its names in the graph, and its gated form act(gate) * up."""

    name: str
    function: Callable[[Tensor], Tensor]
    gated_name: str
    gated: Callable[[Tensor, Tensor], Tensor]


SILU = Activation("silu", silu, "swiglu", swiglu_split)
GELU = Activation("gelu", gelu, "geglu", geglu_split)
RELU = Activation("relu", relu, "reglu", reglu_split)
SWIGLU_OAI = Activation(
    "silu", silu, "swiglu_oai", lambda gate, up: swiglu_oai(gate, up, 1.702, 7.0)
)

# From the router's logits [n_expert, n_tokens] to probabilities.
GATING: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": soft_max,
    "sigmoid": sigmoid,
    "softmax_weight": lambda logits: logits,  # softmax over the chosen ones only
    "sqrt_softplus": lambda logits: sqrt(softplus(logits)),
}


class FeedForward(GraphContext):
    """Blocks that work on each token alone."""

    def build_ffn(
        self,
        cur: Tensor,
        il: int,
        *,
        up: Linear,
        down: Linear,
        gate: Linear | None = None,
        act: Activation = SILU,
    ) -> Tensor:
        """down(act(gate x) * up x), or down(act(up x)) without a gate. [n_embd, n] -> the same"""
        tmp = self._ffn_part(up, cur, "ffn_up", il)
        if gate is None:
            cur = self.cb(act.function(tmp), f"ffn_{act.name}", il)
        else:
            cur = self._ffn_part(gate, cur, "ffn_gate", il)
            cur = self.cb(act.gated(cur, tmp), f"ffn_{act.gated_name}", il)
        cur = self.build_mm(Linear(down.weight), cur)
        if down.bias is not None:
            cur = add(self.cb(cur, "ffn_down", il), down.bias)
        if down.scale is not None:
            cur = self.cb(mul(cur, down.scale), "ffn_down_s", il)
        return cur

    def _ffn_part(self, w: Linear, cur: Tensor, name: str, il: int) -> Tensor:
        cur = self.cb(self.build_mm(Linear(w.weight), cur), name, il)
        if w.bias is not None:
            cur = self.cb(add(cur, w.bias), f"{name}_b", il)
        if w.scale is not None:
            cur = self.cb(mul(cur, w.scale), f"{name}_s", il)
        return cur

    def build_moe_ffn(
        self,
        cur: Tensor,
        layer: Layer,
        il: int,
        *,
        gating: str = "softmax",
        norm_w: bool = True,
        w_scale: float = 0.0,
        act: Activation = SILU,
        logits: Tensor | None = None,
    ) -> Tensor:
        """The weighted sum of each token's experts. [n_embd, n_tokens] -> the same

        gating   how the router's logits become probabilities, one of GATING
        norm_w   weights of the chosen experts are made to sum to one
        w_scale  then multiplied by this, unless it is 0 or 1
        logits   [n_expert, n_tokens] of the router, if it does not see `cur`
        """
        n_embd, n_tokens = cur.ne[:2]
        if logits is None:
            logits = self.build_router(cur, layer, il)
        probs, selected = self._select_experts(logits, layer, il, gating)
        weights = self._expert_weights(probs, selected, il, gating, norm_w, w_scale)
        self.expand(weights)
        cur = reshape(cur, n_embd, 1, n_tokens)
        cur = self._expert_hidden(cur, layer, selected, il, act)
        experts = self._expert_linear(layer.ffn_down_exps, cur, selected, "ffn_moe_down", il)
        experts = self.cb(mul(experts, weights), "ffn_moe_weighted", il)
        return self._sum_experts(self.expand(experts), il)

    def build_router(self, cur: Tensor, layer: Layer, il: int) -> Tensor:
        """[n_embd, n_tokens] -> [n_expert, n_tokens]"""
        router: Linear = layer.ffn_gate_inp
        logits = self.cb(self.build_mm(router, cur), "ffn_moe_logits", il)
        if router.bias is not None:
            logits = self.cb(add(logits, router.bias), "ffn_moe_logits_biased", il)
        return logits

    def _select_experts(
        self, logits: Tensor, layer: Layer, il: int, gating: str
    ) -> tuple[Tensor, Tensor]:
        """-> probabilities [n_expert, n_tokens], chosen experts I32 [n_used, n_tokens]"""
        probs = self.cb(GATING[gating](logits), "ffn_moe_probs", il)
        selection = probs
        bias = layer.get("exp_probs_b")  # decides who is chosen, not how much it weighs
        if bias is not None:
            selection = self.cb(add(probs, bias), "ffn_moe_probs_biased", il)
        if self.hparams.n_expert_groups > 1 and self.n_tokens > 0:
            selection = self._mask_groups(selection, il)
        selected = argsort_top_k(selection, self.hparams.n_expert_used(il))
        assert selected.src[0] is not None
        self.cb(selected.src[0], "ffn_moe_argsort", il)
        return probs, self.cb(selected, "ffn_moe_topk", il)

    def _mask_groups(self, selection: Tensor, il: int) -> Tensor:
        """-inf for experts outside the best groups; a group counts by its two best experts
        (DeepSeek-V3). [n_expert, n_tokens] -> the same"""
        hp = self.hparams
        n_expert, n_tokens = selection.ne[:2]
        per_group = n_expert // hp.n_expert_groups
        groups = reshape(selection, per_group, hp.n_expert_groups, n_tokens)
        best = argsort_top_k(groups, 2)  # [2, n_groups, n_tokens]
        scores = get_rows(reshape(groups, 1, *groups.ne[:3]), best)  # [1, 2, n_groups, n_tokens]
        scores = sum_rows(reshape(scores, *scores.ne[1:]))  # [1, n_groups, n_tokens]
        scores = reshape(scores, *scores.ne[1:3])
        chosen = self.cb(argsort_top_k(scores, hp.n_group_used), "ffn_moe_group_topk", il)
        kept = get_rows(groups, chosen)  # [per_group, n_group_used, n_tokens]
        masked = set_rows(fill(groups, -math.inf), kept, chosen)
        return self.cb(reshape(masked, n_expert, n_tokens), "ffn_moe_probs_masked", il)

    def _expert_weights(
        self, probs: Tensor, selected: Tensor, il: int, gating: str, norm_w: bool, w_scale: float
    ) -> Tensor:
        """-> [1, n_used, n_tokens]"""
        n_used, n_tokens = selected.ne[:2]
        probs = reshape(probs, 1, *probs.ne[:2])
        weights = self.cb(get_rows(probs, selected), "ffn_moe_weights", il)
        if gating == "softmax_weight":
            weights = soft_max(reshape(weights, n_used, n_tokens))
            weights = self.cb(reshape(weights, 1, n_used, n_tokens), "ffn_moe_weights_softmax", il)
        if norm_w:
            weights = reshape(weights, n_used, n_tokens)
            total = self.cb(sum_rows(weights), "ffn_moe_weights_sum", il)  # [1, n_tokens]
            total = clamp(total, F16_SMALLEST_NORMAL, math.inf)
            self.cb(total, "ffn_moe_weights_sum_clamped", il)
            weights = self.cb(div(weights, total), "ffn_moe_weights_norm", il)
            weights = reshape(weights, 1, n_used, n_tokens)
        if w_scale not in (0.0, 1.0):
            weights = self.cb(scale(weights, w_scale), "ffn_moe_weights_scaled", il)
        return weights

    def _expert_hidden(
        self, cur: Tensor, layer: Layer, selected: Tensor, il: int, act: Activation
    ) -> Tensor:
        """[n_embd, 1, n_tokens] -> [n_ff, n_used, n_tokens]"""
        merged = layer.get("ffn_gate_up_exps")
        if merged is not None:
            both = self._expert_linear(merged, cur, selected, "ffn_moe_gate_up", il)
            n_ff = both.ne[0] // 2
            gate = self.cb(view(both, (n_ff, *both.ne[1:3])), "ffn_moe_gate", il)
            up = self.cb(view(both, (n_ff, *both.ne[1:3]), offset=n_ff), "ffn_moe_up", il)
            return self.cb(act.gated(gate, up), f"ffn_moe_{act.gated_name}", il)
        up = self._expert_linear(layer.ffn_up_exps, cur, selected, "ffn_moe_up", il)
        if layer.ffn_gate_exps is None:
            return self.cb(act.function(up), f"ffn_moe_{act.name}", il)
        gate = self._expert_linear(layer.ffn_gate_exps, cur, selected, "ffn_moe_gate", il)
        return self.cb(act.gated(gate, up), f"ffn_moe_{act.gated_name}", il)

    def _expert_linear(self, w: Linear, cur: Tensor, ids: Tensor, name: str, il: int) -> Tensor:
        cur = self.cb(self.build_mm_id(w, cur, ids), name, il)
        if w.scale is not None:
            self.cb(cur, f"{name}_scaled", il)
        if w.bias is not None:
            cur = self.cb(add_id(cur, w.bias, ids), f"{name}_biased", il)
        return cur

    def _sum_experts(self, experts: Tensor, il: int) -> Tensor:
        """[n_embd, n_used, n_tokens] -> [n_embd, n_tokens]; views first, then adds."""
        n_embd, n_used, n_tokens, _ = experts.ne
        per_token = experts.nb[2] // experts.nb[0]
        one = [
            self.expand(view(experts, (n_embd, n_tokens), (per_token,), i * n_embd))
            for i in range(n_used)
        ]
        total = one[0]
        for expert in one[1:]:
            total = self.expand(add(total, expert))
        # One view alone would not be dense.
        return self.cb(cont(total) if n_used == 1 else total, "ffn_moe_out", il)

"""K2 Horizon: norms over groups of dimensions, gated attention, optionally values from experts;
experts after the first layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from typing_extensions import Self

from ggml_py.ops import mul, reshape, rms_norm, scale, softplus
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, Projections
from llama_py.blocks.experts import Weighing
from llama_py.blocks.value_experts import ValueExperts
from llama_py.gguf.keys import Keys, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights

VALUE_GATING = ("softmax", "sigmoid")  # functions that llama.cpp has for value experts


class K2HorizonHParams(LeadingDenseHParams):
    """n_norm_groups   groups of dimensions, each with its own norm
    n_value_expert, n_value_used   experts of values in layers with experts, and of a token
    n_ff_shared     hidden size of all shared experts together, by layer
    """

    rope_type = ROPE_NEOX
    required_heads = equal_heads = equal_experts = True
    usual_gating = "sigmoid"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    yarn_beta_fast: float = number("rope.scaling.yarn_beta_fast", 32.0, least=0)
    yarn_beta_slow: float = number("rope.scaling.yarn_beta_slow", 1.0, least=0)
    n_norm_groups: int = uint("attention.group_norm_groups", 1)
    n_expert_shared: int = uint("expert_shared_count", 0)
    n_ff_exp: tuple[int, ...] = uints(
        "expert_feed_forward_length", lambda hp: None if hp.n_expert else 0
    )
    n_value_expert: int = uint("attention.value_expert_count", 0)
    n_value_used: int = uint("attention.value_expert_used_count", 0)

    def load(self, keys: Keys) -> None:
        if not self.n_expert:
            self.n_layer_dense_lead = self.n_layer_all
        super().load(keys)
        self.n_ff_shared = tuple(self.n_ff_shexp or n * self.n_expert_shared for n in self.n_ff_exp)
        self.n_norm_groups = self.n_norm_groups or 1
        if self.n_embd % self.n_norm_groups:
            rule = f"must divide embedding_length = {self.n_embd}"
            raise keys.error("attention.group_norm_groups", rule)
        least = min(1, self.n_value_expert)
        if not least <= self.n_value_used <= self.n_value_expert:
            rule = f"must be from {least} to value_expert_count = {self.n_value_expert}"
            raise keys.error("attention.value_expert_used_count", rule)
        if self.routes_values(self.n_layer - 1) and self.gating not in VALUE_GATING:
            raise keys.error("expert_gating_func", "must be 1 or 2 for a model with value experts")

    def shared_size(self, keys: Keys) -> int:
        """Return the file's size for all layers; 0: it depends on the routed experts' size."""
        return keys.uint("expert_shared_feed_forward_length", 0)

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        hp.n_ff_shared = tuple(
            share.count_own(n, 1, "ffn_down_shexp", il=il)
            if n and il >= self.n_layer_dense_lead
            else 0
            for il, n in enumerate(self.n_ff_shared)
        )
        return hp

    def routes_values(self, il: int) -> bool:
        """Return True if layer il has value experts."""
        return self.n_value_expert > 0 and il >= self.n_layer_dense_lead


@dataclass(slots=True)
class GroupedNorm(Norm):
    """RMS norm over each of several groups of dimensions, with one weight [n_embd]."""

    n_groups: int = 1

    def __call__(self, g: GraphBuilder, cur: Tensor, name: str = "", il: int = -1) -> Tensor:
        assert self.weight is not None
        n_embd, n = cur.ne[:2]
        groups = reshape(cur, n_embd // self.n_groups, self.n_groups, n)
        cur = reshape(rms_norm(groups, g.hp.f_norm_rms_eps), n_embd, n)
        return g.cb(mul(cur, self.weight), name, il)


def group_norm(w: Weights, stem: str, hp: K2HorizonHParams) -> GroupedNorm:
    """Declare a norm over the model's groups."""
    return GroupedNorm(w.tensor(f"{stem}.weight", hp.n_embd), n_groups=hp.n_norm_groups)


class RoutedProjections(Projections):
    """Separate matrices of queries and keys; values are from a matrix or from experts.

    Layers with value experts choose them before the queries are computed.
    """

    def __init__(self, w: Weights, hp: K2HorizonHParams) -> None:
        shape = hp.layers[w.il]
        d, n_values = shape.n_embd_head_k, shape.n_embd_v_gqa
        self.heads = (d, shape.n_head), (d, shape.n_head_kv), (d, shape.n_head_kv)
        self.joint, self.routed = None, None
        self.parts = [
            w.linear("attn_q", hp.n_embd, shape.n_embd_q),
            w.linear("attn_k", hp.n_embd, shape.n_embd_k_gqa),
        ]
        if hp.routes_values(w.il):
            experts = hp.n_value_expert, hp.n_value_used
            weighing = Weighing(hp.expert_weights_norm, hp.expert_weights_scale)
            sizes = hp.n_embd, n_values
            self.routed = ValueExperts(w, sizes, experts, hp.gating, weighing)
        else:
            self.parts.append(w.linear("attn_v", hp.n_embd, n_values))

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        rows = [] if self.routed is None else [self.routed(g, cur, il)]
        rows = [part(g, cur) for part in self.parts] + rows
        q, k, v = (reshape(x, *size, g.n_tokens) for x, size in zip(rows, self.heads, strict=True))
        return QKV(q, k, g.cb(v, "Vcur", il))


class HorizonAttention(Attention):
    """Attention with optional norms, each head with its own weight, and an optional gate per
    dimension: log2(1 + 2^x)."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: K2HorizonHParams) -> None:
        shape = hp.layers[w.il]
        norms = head_norm(w, "q", shape.n_head, hp), head_norm(w, "k", shape.n_head_kv, hp)
        super().__init__(w, hp, qkv=RoutedProjections(w, hp), norms=norms)
        self.gate = w.optional_linear("attn_gate", hp.n_embd, shape.n_embd_v_out)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        found = self.attend(g, self.normalize_heads(g, self.project(g, cur, il), il), il)
        if self.gate is not None:
            gate = softplus(scale(self.gate(g, cur), math.log(2)))
            found = mul(found, scale(gate, 1 / math.log(2)))
        return self.output(g, found)


def head_norm(w: Weights, which: str, n_head: int, hp: K2HorizonHParams) -> Norm | None:
    """Declare the norm of queries or keys, [d, n_head] or flat, if the file has it."""
    name, d = f"attn_{which}_norm.weight", hp.layers[w.il].n_embd_head_k
    if not w.has(name):
        return None
    return Norm(w.tensor(name, d, n_head, other=(d * n_head,), shaped=(d, n_head)))


class K2Horizon(Decoder):
    arch = "k2-horizon"
    HParams = K2HorizonHParams
    hp: K2HorizonHParams
    names = {"Qcur_normed": "", "Kcur_normed": "", "ffn_shexp": ""}

    def declare_ends(self, w: Weights) -> None:
        if not self.hp.n_expert_shared:
            self.names = {**self.names, "ffn_moe_out": "ffn_out"}
        super().declare_ends(w)
        self.output_norm = group_norm(w, "output_norm", self.hp)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        feed_forward = expert_layer(
            w, hp, il, shared=hp.n_expert_shared > 0, n_ff_shared=hp.n_ff_shared[il]
        )
        return Layer(
            group_norm(w, "attn_norm", hp),
            HorizonAttention(w, hp),
            group_norm(w, "ffn_norm", hp),
            feed_forward,
        )

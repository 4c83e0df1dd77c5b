"""Laguna: gated attention, experts plus a shared one after the first layers; most layers may use
sliding-window attention, with unscaled RoPE (models/laguna.cpp)."""

from __future__ import annotations

from dataclasses import replace

from ggml_py.ops import mul, softplus
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.functions import times_by_head
from llama_py.gguf.keys import Keys, base, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class LagunaHParams(WindowedHParams, LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_gating = "sigmoid"
    n_pattern = 4
    dense_first = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_expert_shared: int = uint("expert_shared_count", 1)
    yarn_beta_fast: float = number("rope.scaling.yarn_beta_fast", 32.0, least=0)
    yarn_beta_slow: float = number("rope.scaling.yarn_beta_slow", 1.0, least=0)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        LeadingDenseHParams.load(self, keys)

    def shared_size(self, keys: Keys) -> int:
        size = keys.uint("expert_shared_feed_forward_length", 0)
        return size or self.n_ff_exp[0] * self.n_expert_shared

    def rope(self, il: int) -> Rope | None:
        rope = super().rope(il)
        return replace(rope, yarn=False, plain=True) if rope and self.swa_layers[il] else rope


class SoftplusGate(Attention):
    """Attention with results multiplied by a softplus of the input, per head or per
    dimension."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams) -> None:
        shape = hp.layers[w.il]
        super().__init__(
            w, hp, norms=head_norms(w, hp), turned=("Qcur_rope", "Kcur_rope"), name="attn_o_proj"
        )
        info = w.info("attn_gate.weight")
        self.by_head = info is None or info.ne[1] != shape.n_embd_v_out
        n_gates = shape.n_head if self.by_head else shape.n_embd_v_out
        self.gate = w.linear("attn_gate", hp.n_embd, n_gates, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend and gate: [n_embd, n_tokens] -> same shape."""
        gate = g.cb(self.gate(g, cur), "attn_gate_proj", il)
        qkv = self.normalize_heads(g, self.project(g, cur, il), il)
        found = g.cb(self.attend(g, qkv, il), "attn_out", il)
        gate = g.cb(softplus(gate), "attn_gate_softplus", il)
        found = times_by_head(found, gate) if self.by_head else mul(found, gate)
        return g.cb(self.output(g, g.cb(found, "attn_gated", il)), self.name, il)


class Laguna(Decoder):
    arch = "laguna"
    HParams = LagunaHParams
    hp: LagunaHParams
    sizes = {40: "30B.A3B", 48: "118B.A8B", 70: "230B.A10B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            SoftplusGate(w, hp),
            w.norm("ffn_norm", n_embd),
            expert_layer(w, hp, il, shared=True, bias="needed"),
        )

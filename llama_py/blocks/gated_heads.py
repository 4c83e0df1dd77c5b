"""Attention with gated results of heads (shared by models/afmoe.cpp, muse-glimmer.cpp
and others)."""

from __future__ import annotations

from ggml_py.ops import mul, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import RopeInSomeLayers, head_norms
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.memory.specs import KVCacheSpec
from llama_py.weights import Weights


class GatedHeads(RopeInSomeLayers):
    """Attention with results multiplied by a gate per dimension, computed from the input."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams) -> None:
        super().__init__(
            w, hp, norms=head_norms(w, hp), turned=("Qcur_rope", "Kcur_rope"), name="attn_o_proj"
        )
        self.gate = w.linear("attn_gate", hp.n_embd, hp.layers[w.il].n_embd_v_out, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        gate = g.cb(self.gate(g, cur), "attn_gate_proj", il)
        qkv = self.normalize_heads(g, self.project(g, cur, il), il)
        cur = self.normalize_result(g, g.cb(self.attend(g, qkv, il), "attn_out", il), il)
        gate = g.cb(self.activate_gate(gate), "attn_gate_sig", il)
        return g.cb(self.output(g, g.cb(mul(cur, gate), "attn_gated", il)), self.name, il)

    def normalize_result(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Return the joined results of heads before the gate: [d * n_head, n_tokens]."""
        return cur

    def activate_gate(self, gate: Tensor) -> Tensor:
        """Return the factors of results: [d * n_head, n_tokens] -> same shape."""
        return sigmoid(gate)

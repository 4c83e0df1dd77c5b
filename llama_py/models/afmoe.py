"""AFMoE (Arcee Trinity): attention with a gate on its result, norms before and after blocks,
experts after the first layers; most layers see a window of tokens, every fourth has no RoPE
(models/afmoe.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import mul, scale, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.geometry import ROPE_NEOX, Rope
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.keys import Keys, base, number
from llama_py.memory.kept import KeysValues
from llama_py.models._decoder import Decoder, Layer
from llama_py.models._experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights

ROPE_PERIOD = 4  # the last of so many layers has no RoPE


class AfMoeHParams(WindowedHParams, LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_gating = "sigmoid"
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        LeadingDenseHParams.load(self, keys)
        self.rope_freq_scale_swa = self.rope_freq_scale_train

    def rope(self, il: int) -> Rope | None:
        return None if (il + 1) % ROPE_PERIOD == 0 else super().rope(il)


class AfMoe(Decoder):
    arch = "afmoe"
    HParams = AfMoeHParams
    hp: AfMoeHParams
    sizes = {32: "26B", 56: "6B"}

    def embed(self, g: GraphBuilder) -> Tensor:
        root = float(np.sqrt(np.float32(self.hp.n_embd)))
        return g.cb(scale(super().embed(g), root), "inp_embd_scaled")

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            GatedHeads(w, hp),
            w.norm("ffn_norm", n_embd),
            expert_layer(w, hp, il, shared=hp.n_expert_shared > 0, probs_bias="needed"),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
            norms_all=True,
        )


class GatedHeads(Attention):
    """What heads find is gated, channel by channel, by their input."""

    parts_keep = KeysValues

    def __init__(self, w: Weights, hp: HParams) -> None:
        shape = hp.layers[w.il]
        d = shape.n_embd_head_k
        super().__init__(
            w, hp, q_norm=w.norm("attn_q_norm", d), k_norm=w.norm("attn_k_norm", d),
            turned=("Qcur_rope", "Kcur_rope"), name="attn_o_proj",
        )  # fmt: skip
        self.gate = w.linear("attn_gate", hp.n_embd, shape.n_embd_v_out, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        gate = g.cb(self.gate(g, cur), "attn_gate_proj", il)
        qkv = self.normed(g, self.project(g, cur, il), il)
        cur = g.cb(self.seen(g, qkv, il), "attn_out", il)
        cur = g.cb(mul(cur, g.cb(sigmoid(gate), "attn_gate_sig", il)), "attn_gated", il)
        return g.cb(self.output(g, cur), self.name, il)

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return (qkv.q, qkv.k) if g.hp.layers[il].rope is None else super().place(g, qkv, il)

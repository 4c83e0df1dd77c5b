"""AFMoE (Arcee Trinity): gated attention, norms before and after blocks, experts after the first
layers; most layers use sliding-window attention, every fourth has no RoPE (models/afmoe.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.gated_heads import GatedHeads
from llama_py.gguf.keys import base, number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Decoder, LateSelectLayer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights

ROPE_PERIOD = 4  # the last layer of each period has no RoPE


class AfMoeHParams(ScaledWindows, LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_gating = "sigmoid"
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)

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

    def layer(self, w: Weights, il: int) -> LateSelectLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        return LateSelectLayer(
            w.norm("attn_norm", n_embd),
            GatedHeads(w, hp),
            w.norm("ffn_norm", n_embd),
            expert_layer(w, hp, il, shared=hp.n_expert_shared > 0, bias="needed"),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
        )

"""Beam: gated attention with one gate bias per head, norms before and after blocks, experts after
the first layers, residual sums of constant variance; layers without a window scale queries by
position instead of RoPE."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ggml_py.ops import add, reshape, scale, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV
from llama_py.blocks.functions import scale_by_position
from llama_py.blocks.gated_heads import GatedHeads
from llama_py.gguf.keys import Keys, base, divisor, flag, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputAttnPower
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, LateSelectLayer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.listed_windows import ListedWindows
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class BeamHParams(ListedWindows, ScaledWindows, LeadingDenseHParams):
    """attn_temp_*   exponent and length of the factor on queries in layers without a window"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = equal_experts = True
    usual_gating = "sigmoid"
    n_expert_shared = 0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_layer_dense_lead: int = uint("leading_dense_block_count", counts="first")
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    expert_weights_scale: float = number("expert_weights_scale")
    expert_weights_norm: bool = flag("expert_weights_norm")
    final_logit_softcap: float = divisor("final_logit_softcapping", 0.0)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    attn_temp_scale: float = number("attention.temperature_scale", 0.1)
    attn_temp_length: int = uint("attention.temperature_length", 2048, least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not self.attn_temp_scale:
            raise keys.error("attention.temperature_scale", "must not be 0")
        if not any(self.swa_layers):
            raise keys.error("attention.sliding_window_pattern", "must have a layer with a window")
        if self.n_layer_dense_lead > self.n_layer:
            raise keys.error("leading_dense_block_count", f"must be at most {self.n_layer} layers")

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        keys.flags("attention.sliding_window_pattern", self.n_layer_all, longer=False)
        return super()._pattern(keys)


class BeamAttention(GatedHeads):
    """All gates of a head have the same bias."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: BeamHParams) -> None:
        super().__init__(w, hp)
        self.gate_bias = w.tensor("attn_gate.bias", hp.layers[w.il].n_head)
        self.temperature = hp.attn_temp_length, hp.attn_temp_scale

    def activate_gate(self, gate: Tensor) -> Tensor:
        n_head, (n, n_tokens) = self.gate_bias.ne[0], gate.ne[:2]
        by_head = reshape(gate, n // n_head, n_head, n_tokens)
        gate = sigmoid(add(by_head, reshape(self.gate_bias, 1, n_head, 1)))
        return reshape(gate, n, n_tokens)

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        if g.hp.layers[il].rope is not None:
            return super().place(g, qkv, il)
        q = scale_by_position(g, qkv.q, *self.temperature, 1.0, by=InputAttnPower)
        return g.cb(q, "Qcur_scaled", il), qkv.k


@dataclass
class BeamLayer(LateSelectLayer):
    """Layer with sums that keep the variance of their terms.

    first  number of terms in the residual stream after attention's sum
    """

    first: int = 2

    def attn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return _mix(self.first, x, cur)

    def ffn_sum(self, x: Tensor, cur: Tensor) -> Tensor:
        return _mix(self.first + 1, x, cur)


def _mix(n: int, x: Tensor, cur: Tensor) -> Tensor:
    """Add the n-th term `cur` to the sum x of the terms before it, with equal weights."""
    return add(scale(cur, math.sqrt(1 / n)), scale(x, math.sqrt((n - 1) / n)))


class Beam(Decoder):
    arch = "beam"
    HParams = BeamHParams
    hp: BeamHParams

    def layer(self, w: Weights, il: int) -> BeamLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        return BeamLayer(
            w.norm("attn_norm", n_embd),
            BeamAttention(w, hp),
            w.norm("ffn_norm", n_embd),
            expert_layer(w, hp, il, shared=False, bias="needed"),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
            first=2 * (il + 1),
        )

"""Step 3.5 and 3.7: a gate on each head's result, experts plus a shared expert after the first
layers, limits of hidden values by layer; most layers have a sliding window, with more heads and
full RoPE; NextN layers that draft (models/step35.cpp).

llama.cpp does not shift a context of this model; here it can."""

from __future__ import annotations

from ggml_py.ops import mul, reshape, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import limited_silu
from llama_py.blocks.attention import Attention, RowProjections
from llama_py.blocks.experts import (
    GATING_FUNCS,
    UNSCALED,
    Experts,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.rope import RopeFactors
from llama_py.gguf.keys import Keys, flag, number, numbers, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.experts import skip_dense
from llama_py.models.trunks.flagged_windows import FlaggedWindows
from llama_py.models.trunks.nextn import NextNEnds, UnnormedDrafter
from llama_py.weights import Weights

NAMES = {"ffn_shexp": "ffn_shared_out"}
DRAFT_NAMES = {
    "mtp_attn_post_norm": "mtp_ffn_norm",
    "ffn_shexp": "mtp_ffn_shared_out",
    **{
        x: f"mtp_{x}"
        for x in (
            "attn_norm",
            "Qcur",
            "Kcur",
            "Vcur",
            "Qcur_normed",
            "Kcur_normed",
            "Qcur_pos",
            "Kcur_pos",
            "attn_out",
            "attn_gate",
            "attn_gate_sigmoid",
            "attn_gate_3d",
            "attn_gated_3d",
            "attn_gated",
            "attn_proj",
            "ffn_moe_out",
            "ffn_out",
        )
    },
}


class Step35HParams(FlaggedWindows):
    """swiglu_clamp_exp, swiglu_clamp_shexp  limits of hidden values, by layer, of routed experts
    and of the shared expert; 0: no limit. The file counts twice the dimensions that RoPE rotates in
    layers without a window."""

    rope_type = ROPE_NEOX
    required_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)
    expert_gating_func: int = uint("expert_gating_func", 0, most=len(GATING_FUNCS))
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    expert_weights_norm: bool = flag("expert_weights_norm", False)
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp", 0.0)
    swiglu_clamp_shexp: tuple[float, ...] = numbers("swiglu_clamp_shexp", 0.0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_rot % 4:
            raise keys.error("rope.dimension_count", "must be a multiple of four")
        self.n_rot //= 2
        if self.n_expert and not self.n_ff_shexp:
            raise keys.error("expert_shared_feed_forward_length", "must be at least 1")
        number = self.expert_gating_func
        self.gating = GATING_FUNCS[number - 1] if number else "sigmoid"

    @property
    def n_rot_most(self) -> int:
        """Maximum number of dimensions with RoPE among the trunk's layers."""
        return max(self.n_rot_swa if swa else self.n_rot for swa in self.swa_layers[: self.n_layer])


class HeadGate(Attention):
    """Attention with heads multiplied by a sigmoid of the input, if the layer has the gate."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: HParams, factors: RopeFactors | None) -> None:
        self.shape = shape = hp.layers[w.il]
        q_norm, k_norm = (w.optional_norm(f"attn_{x}_norm", shape.n_embd_head_k) for x in "qk")
        super().__init__(
            w,
            hp,
            qkv=RowProjections(w, hp.n_embd, shape),
            norms=(q_norm, k_norm),
            factors=factors,
            turned=("Qcur_pos", "Kcur_pos"),
            name="attn_proj",
        )
        self.gate = w.optional_linear("attn_gate", hp.n_embd, shape.n_head, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend and gate heads: [n_embd, n_tokens] -> same shape."""
        qkv = self.normalize_heads(g, self.project(g, cur, il), il)
        found = g.cb(self.attend(g, qkv, il), "attn_out", il)
        if self.gate is not None:
            gate = g.cb(self.gate(g, cur), "attn_gate", il)
            gate = g.cb(sigmoid(gate), "attn_gate_sigmoid", il)
            found = g.cb(self.gate_heads(g, found, gate, il), "attn_gated", il)
        return g.cb(self.output(g, found), self.name, il)

    def gate_heads(self, g: GraphBuilder, found: Tensor, gate: Tensor, il: int) -> Tensor:
        """Multiply heads found [d * n_head, n_tokens] by gate [n_head, n_tokens]. -> like found"""
        n_head = self.shape.n_head
        by_head = reshape(found, self.shape.n_embd_head_v, n_head, g.n_tokens)
        gate = g.cb(reshape(gate, 1, n_head, g.n_tokens), "attn_gate_3d", il)
        by_head = g.cb(mul(by_head, gate), "attn_gated_3d", il)
        return reshape(by_head, *found.ne[:2])


class Step35(UnnormedDrafter):
    """Decoder with dense layers or experts, depending on the tensors."""

    arch = "step35"
    HParams = Step35HParams
    hp: Step35HParams
    names = NAMES
    draft_names = DRAFT_NAMES
    sizes = {45: "196B.A11B"}
    nextn_ends = NextNEnds(scaled=False, head_scaled=False)

    def declare(self, w: Weights) -> None:
        self.factors = RopeFactors(w, self.hp, n_rot=self.hp.n_rot_most)
        super().declare(w)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return None if self.hp.swa_layers[il] else self.factors(cparams)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            HeadGate(w, hp, None if hp.swa_layers[il] else self.factors),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp, act = self.hp, limited_silu(self.hp.swiglu_clamp_shexp[il])
        if not w.has("ffn_gate_inp.weight"):
            return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=act, scaled=False)
        skip_dense(w)
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=UNSCALED,
            routing=Routing(gating=hp.gating, bias="optional", router_scaled=False),
            weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
            act=limited_silu(hp.swiglu_clamp_exp[il]),
        )
        return SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False, act=act)

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(super().embed(g), "attn_norm_in", 0)

    def after_layer(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        return g.cb(cur, "attn_norm_in", il + 1) if il + 1 < self.hp.n_layer else cur

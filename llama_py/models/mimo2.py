"""MiMo-V2: attention with sinks per head and keys larger than values, experts in most layers,
sliding-window attention in most layers, NextN layers that draft (models/mimo2.cpp).

llama.cpp drafts only with a NextN layer that has one matrix for queries, keys and values; here it
may have three.
"""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, Projections
from llama_py.blocks.experts import UNSCALED, Experts, Routing
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, number, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import NormKind
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import AnyLayer, Block, Decoder, Layer
from llama_py.models.trunks.experts import skip_dense
from llama_py.models.trunks.flagged_windows import FlaggedWindows
from llama_py.models.trunks.nextn import EarlyDrafter, NextNEnds, UnnormedDrafter, UnnormedNextN
from llama_py.weights import Weights

DRAFT_NAMES = {
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_ffn_norm",
    **{
        x: f"mtp_{x}"
        for x in (
            "attn_norm",
            "wqkv",
            "Qcur",
            "Kcur",
            "Vcur",
            "attn_out",
            "attn_out_scaled",
            "ffn_out",
        )
    },
}


class Mimo2HParams(FlaggedWindows):
    """value_scale  factor of attention results; 0: no factor"""

    rope_type = ROPE_NEOX
    required_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    value_scale: float = number("attention.value_scale", 0.0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        # RoPE rotates the same number of dimensions in all layers
        self.n_rot = self.n_rot_swa = self.n_rot_swa if self.swa_layers[0] else self.n_rot


class UnnamedProjections(Projections):
    def name_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        return qkv


class Mimo2Attention(Attention):
    """Attention with a scale on its result."""

    parts_keep = KVCacheSpec

    def __init__(self, w: Weights, hp: Mimo2HParams) -> None:
        shape = hp.layers[w.il]
        drafts = w.il >= hp.n_layer
        qkv = UnnamedProjections(w, hp.n_embd, shape, bias="unread", scaled=drafts)
        super().__init__(w, hp, qkv=qkv, name="attn_out")
        self.sinks = w.optional_tensor("attn_sinks.weight", shape.n_head)
        self.value_scale = 0.0 if hp.value_scale == 1 else hp.value_scale

    def attend(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        g.cb(qkv.v, "Vcur", il)
        return super().attend(g, qkv, il)

    def attend_and_project(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        cur = super().attend_and_project(g, qkv, il)
        if self.value_scale:
            cur = g.cb(scale(cur, self.value_scale), "attn_out_scaled", il)
        return cur


class Mimo2NextN(UnnormedNextN):
    """NextN layer with an alternative name for its last norm."""

    def __init__(
        self, w: Weights, hp: HParams, layer: AnyLayer, kind: NormKind, ends: NextNEnds
    ) -> None:
        super().__init__(w, hp, layer, kind, ends)
        other = w.optional_norm("layer_output_norm", hp.n_embd)
        self.head_norm = self.head_norm or other


class Mimo2(UnnormedDrafter, EarlyDrafter):
    """Decoder with dense layers or experts, depending on the tensors; draft layers are dense."""

    arch = "mimo2"
    HParams = Mimo2HParams
    hp: Mimo2HParams
    draft_names = DRAFT_NAMES
    sizes = {48: "310B.A15B"}
    nextn = Mimo2NextN

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Mimo2Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        if il >= hp.n_layer or not w.has("ffn_gate_inp.weight"):
            return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False)
        skip_dense(w)
        return Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=UNSCALED,
            routing=Routing(gating="sigmoid", bias="optional", router_scaled=False),
        )

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        kind = UnnormedDrafter if g.cparams.embeddings_nextn else Decoder
        kind.finish(self, g, cur, selected)

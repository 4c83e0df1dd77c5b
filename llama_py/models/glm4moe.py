"""GLM-4.5 and similar models, text and vision: experts after the first layers, with shared experts,
a NextN layer that drafts (models/glm4-moe.cpp).

llama.cpp cannot draft with a file of several position axes; here it can.
"""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.experts import SharedExperts
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.axes import AxesDecoder, AxesHParams
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.nextn import DRAFT_NAMES, EarlyDrafter
from llama_py.weights import Weights

NAMES = {
    "ffn_norm": "post_attn_norm",
    "ffn_shexp": "ffn_shexp_out",
    "attn_out": "",
    "Qcur_rope": "Qcur",
    "Kcur_rope": "Kcur",
    "Vcur_heads": "Vcur",
}
DRAFT_NAMES_GLM = {
    **{k: DRAFT_NAMES[k] for k in ("attn_norm", "Qcur_normed", "Kcur_normed", "ffn_out")},
    "Qcur_rope": "mtp_Qcur",
    "Kcur_rope": "mtp_Kcur",
    "Vcur_heads": "mtp_Vcur",
    "attn_out": "mtp_attn_out",
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_post_attn_norm",
    "ffn_moe_out": "mtp_ffn_moe_out",
    "ffn_shexp": "mtp_ffn_shexp_out",
}


class Glm4MoeHParams(AxesHParams, LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_gating = "sigmoid"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Glm4Moe(AxesDecoder, EarlyDrafter):
    arch = "glm4moe"
    HParams = Glm4MoeHParams
    hp: Glm4MoeHParams
    names = NAMES
    draft_names = DRAFT_NAMES_GLM
    sizes = {46: "106B.A12B", 48: "102B.A12B", 92: "355B.A32B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd, d = self.hp, self.hp.n_embd, self.hp.layers[il].n_embd_head_k
        q_norm, k_norm = (w.optional_norm(f"attn_{x}_norm", d) for x in "qk")
        attention = NamedAttention(
            w, hp, norms=(q_norm, k_norm), turned=("Qcur_rope", "Kcur_rope"), name="attn_out"
        )
        attention.output.prec = "f32"
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("post_attention_norm", n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        """Return the feed-forward; a dense down projection is computed in F32."""
        block = expert_layer(w, self.hp, il, shared=self.hp.n_expert_shared > 0, bias="needed")
        dense = block.shared if isinstance(block, SharedExperts) else block
        if isinstance(dense, FeedForward):
            dense.down.prec = "f32"
        return block


class NamedAttention(Attention):
    """Names values differently in the draft graph, like queries and keys."""

    parts_keep = KVCacheSpec

    def attend(self, g: GraphBuilder, qkv: QKV, il: int) -> Tensor:
        g.cb(qkv.v, "Vcur_heads", il)
        return super().attend(g, qkv, il)

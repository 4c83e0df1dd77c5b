"""Command A with experts: Command R7B's layers, with experts after the first layers, and a NextN
layer that drafts (models/cohere2moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import ExpertSet, SharedExperts
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.linear import Norm, NormKind
from llama_py.hparams import EPS, RMS_EPS, HParams
from llama_py.hparams.layer_shape import Rope
from llama_py.models.cohere2 import Cohere2HParams
from llama_py.models.glm4moe import NamedAttention
from llama_py.models.trunks.decoder import ParallelLayer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.nextn import DRAFT_NAMES, DraftingDecoder
from llama_py.weights import Weights


class Cohere2MoeHParams(Cohere2HParams, LeadingDenseHParams):
    """RoPE applies in layers with a window, in the first layers, and in NextN layers."""

    whole_rope = True
    dense_first = True
    usual_gating = "sigmoid"
    f_norm_eps: float = number(EPS, 0.0, least=0)
    f_norm_rms_eps: float = number(RMS_EPS, 0.0, least=0)
    n_layer_dense_lead: int = uint("leading_dense_block_count", counts="first")
    n_expert_shared: int = uint("expert_shared_count", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not (keys.has(EPS) or keys.has(RMS_EPS)):
            raise keys.error(RMS_EPS, f"or {keys.full(EPS)} must be set")
        if self.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")
        self.n_ff_exp = tuple(n or m for n, m in zip(self.n_ff_exp, self.n_ff, strict=True))

    def shared_size(self, keys: Keys) -> int:
        n_ff = self.n_ff_exp[0] or self.n_ff[0]
        given = keys.uint("expert_shared_feed_forward_length", 0)
        return given or n_ff * self.n_expert_shared

    def rope(self, il: int) -> Rope | None:
        alike = self.n_layer_dense_lead <= il < self.n_layer and not self.swa_layers[il]
        return None if alike else HParams.rope(self, il)


class Cohere2Moe(DraftingDecoder):
    arch = "cohere2moe"
    HParams = Cohere2MoeHParams
    hp: Cohere2MoeHParams
    sizes = {49: "30B.A3B"}
    names = {"Qcur_rope": "Qcur", "Kcur_rope": "Kcur", "Vcur_heads": "Vcur", "attn_out": ""}
    draft_names = {
        **{k: DRAFT_NAMES[k] for k in ("attn_norm", "ffn_out", "ffn_moe_out", "ffn_shexp")},
        "Qcur_rope": "mtp_Qcur",
        "Kcur_rope": "mtp_Kcur",
        "Vcur_heads": "mtp_Vcur",
        "attn_out": "mtp_attn_out",
    }

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = self.norm(w, "output_norm")
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab)

    def norm(self, w: Weights, stem: str) -> Norm:
        kind: NormKind = "rms" if self.hp.f_norm_rms_eps else "layer"
        return w.norm(stem, self.hp.n_embd, kind=kind)

    def layer(self, w: Weights, il: int) -> ParallelLayer:
        hp = self.hp
        attention = NamedAttention(w, hp, turned=("Qcur_rope", "Kcur_rope"), name="attn_out")
        feed_forward = expert_layer(
            w, hp, il, shared=hp.n_expert_shared > 0, bias="no", experts=ExpertSet(merged=True)
        )
        if isinstance(feed_forward, SharedExperts):
            feed_forward.mean = True
        return ParallelLayer(self.norm(w, "attn_norm"), attention, feed_forward)

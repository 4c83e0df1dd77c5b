"""Decoders whose layers are mostly gated delta nets and now and then full attention with a gate
(the part that models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp have in common)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ggml_py.tensor import Tensor
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.linear_attention import DeltaNetHParams, LinearAttention
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.params import GraphType
from llama_py.keys import Keys
from llama_py.models._decoder import Block, Decoder, Layer
from llama_py.models._nextn import DRAFT_NAMES, NextN
from llama_py.weights import Weights


class HybridHParams(DeltaNetHParams):
    required_heads = equal_heads = True

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.recurrent_layers = self._load_recurrent_layers(keys)

    def _load_recurrent_layers(self, keys: Keys) -> tuple[bool, ...]:
        if keys.has("attention.recurrent_layers"):
            return keys.flags("attention.recurrent_layers", self.n_layer_all)
        every = keys.uint("full_attention_interval", 4)
        if every == 0:
            raise keys.error("full_attention_interval", "it must be at least 1")
        return tuple((il + 1) % every != 0 for il in range(self.n_layer_all))

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.recurrent_layers[il]


NAMES = {
    "embd": "model.input_embed", "Kcur_full": "Kcur", "Vcur_full": "Vcur", "gate_view": "",
    "ffn_inp": "attn_residual", "ffn_norm": "attn_post_norm",
}  # fmt: skip


class Hybrid(Decoder):
    """Linear: the block of layers that are not full attention; joint_4d: see GatedAttention."""

    hp: HybridHParams
    names = NAMES
    draft_names = DRAFT_NAMES
    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder", "decoder_mtp")
    supports_rs_rollback = True
    Linear: ClassVar[type[LinearAttention]] = LinearAttention
    joint_4d: ClassVar[bool] = False
    drafts_early: ClassVar[bool] = False

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent = hp.layers[il].recurrent
        return Layer(
            w.norm("attn_norm", n_embd),
            self.Linear(w, hp) if recurrent else GatedAttention(w, hp, self.joint_4d),
            w.norm("post_attention_norm", n_embd),
            self.feed_forward(w, il),
            expanded=True,
        )

    @abstractmethod
    def feed_forward(self, w: Weights, il: int) -> Block:
        """The block of a layer after its attention."""

    def declare_nextn(self, w: Weights) -> None:
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        if not self.load_mtp:
            w.skip_layers(nextn)
            return
        self.drafts = [NextN(w.layer(il), self.hp, self.layer(w.layer(il), il)) for il in nextn]

    def selects_early(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        # The normed state feeds the head, and the NextN layer of a draft context.
        cur = self.output_norm(g, cur, "h_nextn")
        g.res.t_h_nextn = cur
        if not selected:
            cur = g.outputs(cur)[0]
        g.res.t_embd = g.cb(cur, "result_norm")
        self.head(g, cur)

    def build_draft(self, g: GraphBuilder) -> None:
        cur, output = self.drafts[0].build(
            g, self.token_embd, self.output_norm, self.hp.n_layer, self.drafts_early
        )
        self.head(g, cur, output)

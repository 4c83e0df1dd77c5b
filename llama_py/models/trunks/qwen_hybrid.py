"""Decoders whose layers are mostly gated delta nets and now and then full attention with a gate
(the part that models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp have in common)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.linear_attention import DeltaNetHParams
from llama_py.blocks.slots import SlotAttention, each_seq
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.hybrid import IntervalHParams
from llama_py.models.trunks.nextn import DRAFT_NAMES, DraftingDecoder
from llama_py.weights import Weights


class HybridHParams(IntervalHParams, DeltaNetHParams):
    required_heads = equal_heads = True


NAMES = {
    "embd": "model.input_embed",
    "Kcur_full": "Kcur",
    "Vcur_full": "Vcur",
    "gate_view": "",
    "ffn_inp": "attn_residual",
    "ffn_norm": "attn_post_norm",
}


class DeltaLayer(Layer):
    """A layer of linear attention. Where states are in slots, its first half computes one sequence
    after the other, and names are ik_llama.cpp's."""

    def _attended(
        self, g: GraphBuilder, attention: Block, residual: Tensor, il: int, last: bool
    ) -> Tensor:
        if not g.cparams.in_slots:
            return super()._attended(g, attention, residual, il, last)
        assert self.attn_norm is not None
        norm = self.attn_norm

        def one(g: GraphBuilder, x: Tensor) -> Tensor:
            cur = attention(g, norm(g, x, il=il), il)
            return g.cb(add(cur, x), "ssm_output", il)

        cur = each_seq(g, residual, one)
        return g.outputs(cur)[0] if last else cur


class Hybrid(DraftingDecoder):
    """Linear: the block of layers that are not full attention; joint_4d: see GatedAttention."""

    hp: HybridHParams
    names = NAMES
    draft_names = DRAFT_NAMES
    in_slots = True
    Linear: ClassVar[type[SlotAttention]] = SlotAttention
    joint_4d: ClassVar[bool] = False

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent = hp.layers[il].recurrent
        kind = DeltaLayer if recurrent else Layer
        return kind(
            w.norm("attn_norm", n_embd),
            self.Linear(w, hp) if recurrent else GatedAttention(w, hp, self.joint_4d),
            w.norm("post_attention_norm", n_embd),
            self.feed_forward(w, il),
            expanded=True,
        )

    @abstractmethod
    def feed_forward(self, w: Weights, il: int) -> Block:
        """The block of a layer after its attention."""

    def selects_early(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

"""Decoders with layers that keep a recurrent state instead of keys and values.

Such layers have no key heads (models/granite-hybrid.cpp, jamba.cpp, lfm2.cpp), or they are all but
every n-th (models/qwen35.cpp, qwen35moe.cpp, qwen3next.cpp, minimax-01.cpp).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.experts import Experts, ExpertSet, SharedExperts
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.linear_attention import DeltaNetHParams, DeltaProjections, LinearAttention
from llama_py.blocks.slots import SlotAttention, each_seq
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.memory.specs import StateSpec
from llama_py.models.trunks.decoder import Block, EarlyNormLayer, Layer
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.models.trunks.nextn import DRAFT_NAMES, DraftingDecoder
from llama_py.weights import Weights


class MixedHParams(HParams):
    """Layers without key heads are recurrent."""

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0


class IntervalHParams(HParams):
    """Recurrent layers are listed in the file, or all except every full_attention_interval-th."""

    usual_interval: ClassVar[int] = 4

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.recurrent_layers = self._load_recurrent_layers(keys)

    def _load_recurrent_layers(self, keys: Keys) -> tuple[bool, ...]:
        if keys.has("attention.recurrent_layers"):
            return keys.flags("attention.recurrent_layers", self.n_layer_all, longer=False)
        every = keys.uint("full_attention_interval", self.usual_interval)
        if every == 0:
            raise keys.error("full_attention_interval", "must be at least 1")
        return tuple((il + 1) % every != 0 for il in range(self.n_layer_all))

    def layer_lists(self) -> dict[str, tuple[bool, ...] | int]:
        listed = {"attention.recurrent_layers": self.recurrent_layers}
        return super().layer_lists() | listed | {"full_attention_interval": 0}

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.recurrent_layers[il]


class HybridHParams(IntervalHParams, DeltaNetHParams):
    required_heads = equal_heads = True


class HybridMoeHParams(ExpertHParams, HybridHParams):
    pass


@dataclass(slots=True)
class OperatorLayer:
    """x + operator(norm(x)), then x + feed_forward(norm(x)).

    name      name of the operator's result
    ffn_name  final name of the feed-forward's input
    """

    norm: Norm
    operator: Block
    ffn_norm: Norm
    feed_forward: Block
    name: str = ""
    ffn_name: str = ""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual = cur
        cur = self.operator(g, self.norm(g, cur, "attn_norm", il), il)
        if last:  # only output rows remain
            cur, residual = g.outputs(cur, residual)
        if self.name:
            g.cb(cur, self.name, il)
        cur = add(residual, cur)
        normed = self.ffn_norm(g, cur, "ffn_norm", il)
        fed = self.feed_forward(g, normed, il)
        if self.ffn_name:
            g.cb(normed, self.ffn_name, il)
        return add(cur, fed)


NAMES = {
    "embd": "model.input_embed",
    "Kcur_full": "Kcur",
    "Vcur_full": "Vcur",
    "gate_view": "",
    "ffn_inp": "attn_residual",
    "ffn_norm": "attn_post_norm",
}


class DeltaAttention:
    """Linear attention with states in cells or in slots, with the same weights."""

    parts_keep = StateSpec

    def __init__(self, w: Weights, hp: HybridHParams, projections: type[DeltaProjections]) -> None:
        self.cells = LinearAttention(w, hp, projections)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        block = SlotAttention(self.cells) if g.cparams.in_slots else self.cells
        return block(g, cur, il)


class DeltaLayer(EarlyNormLayer):
    """A layer of linear attention. If states are in slots, its first half computes sequences
    separately, and names are ik_llama.cpp's."""

    def _attend(
        self, g: GraphBuilder, attention: Block, residual: Tensor, il: int, last: bool
    ) -> Tensor:
        if not g.cparams.in_slots:
            return super()._attend(g, attention, residual, il, last)
        assert self.attn_norm is not None
        norm = self.attn_norm

        def one(g: GraphBuilder, x: Tensor) -> Tensor:
            cur = attention(g, norm(g, x, il=il), il)
            return g.cb(add(cur, x), "ssm_output", il)

        cur = each_seq(g, residual, one)
        return g.outputs(cur)[0] if last else cur


class Hybrid(DraftingDecoder):
    """Layers of delta nets, and some of full attention with a gate (models/qwen35.cpp).

    projections   matrices of a delta net
    full          the block of full attention
    """

    hp: HybridHParams
    names = NAMES
    draft_names = DRAFT_NAMES
    in_slots = True
    projections: ClassVar[type[DeltaProjections]] = DeltaProjections
    full: ClassVar[type[GatedAttention]] = GatedAttention

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        kind = DeltaLayer if hp.layers[il].recurrent else EarlyNormLayer
        return kind(
            w.norm("attn_norm", n_embd),
            self.attention(w, il),
            w.norm("post_attention_norm", n_embd),
            self.feed_forward(w, il),
        )

    def attention(self, w: Weights, il: int) -> Block:
        """Make the first block of a layer."""
        if self.hp.layers[il].recurrent:
            return DeltaAttention(w, self.hp, self.projections)
        return self.full(w, self.hp)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        # The llama.cpp that reads folded weights selects the rows of outputs earlier.
        folded = g.rotations is not None and not g.cparams.embeddings_nextn
        return folded or super().skips_unused_rows(g)

    @abstractmethod
    def feed_forward(self, w: Weights, il: int) -> Block:
        """Declare the block after a layer's attention."""


class HybridMoe(Hybrid):
    """Chosen experts and a shared one with a gate (models/qwen35moe.cpp and qwen3next.cpp)."""

    hp: HybridMoeHParams
    layer_sum = "post_moe"

    def feed_forward(self, w: Weights, il: int) -> Block:
        experts = Experts(w, self.hp, self.hp.n_ff_exp[il], experts=ExpertSet(merged=True))
        return SharedExperts(w, self.hp, experts, self.hp.n_ff_shexp, gated=True)

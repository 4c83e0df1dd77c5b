"""Qwen3.5 and 3.6, dense: delta nets, every fourth layer full attention (models/qwen35.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_IMROPE, Keys
from llama_py.inputs import GraphParams
from llama_py.models._hybrid import HybridGraph, HybridHParams, HybridModel
from llama_py.models._nextn import NextNGraph
from llama_py.weights import LayerLoader


class Qwen35HParams(HybridHParams):
    rope_type = ROPE_IMROPE

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.load_rope_sections(keys)


class Qwen35(HybridModel):
    arch = "qwen35"
    hparams_class = Qwen35HParams

    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        t.gated_ffn(self.hparams.n_embd, self.hparams.n_ff(il))

    def graph(self, params: GraphParams) -> Qwen35Graph:
        return Qwen35Graph(self, params)

    def draft_graph(self, params: GraphParams) -> Qwen35Draft:
        return Qwen35Draft(self, params)


class Qwen35Graph(HybridGraph):
    layer_sum = "post_ffn"

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        return self.build_ffn(cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down)


class Qwen35Draft(NextNGraph, Qwen35Graph):
    """Its layer drafts with the same blocks."""

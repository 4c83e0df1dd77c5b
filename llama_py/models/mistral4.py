"""Mistral 4: latent attention and experts like DeepSeek-V3; the experts' down projections need more
than half precision (models/mistral4.cpp)."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.tensor import Tensor
from llama_py.blocks.experts import Experts, Optional, SharedExperts
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.params import GraphType
from llama_py.models.deepseek2 import Deepseek2, Deepseek2HParams
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.weights import Weights


class Mistral4HParams(Deepseek2HParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_yarn_mscale = 1.0


class Mistral4(Deepseek2):
    arch = "mistral4"
    HParams = Mistral4HParams
    hp: Mistral4HParams
    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder",)

    def declare_nextn(self, w: Weights) -> None:
        Decoder.declare_nextn(self, w)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return True

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        Decoder.finish(self, g, cur, selected)

    def feed_forward(
        self,
        w: Weights,
        il: int,
        *,
        need_shexp: bool,
        probs_bias: Optional = "optional",
        scaled: bool = False,
    ) -> Block:
        block = super().feed_forward(
            w, il, need_shexp=need_shexp, probs_bias=probs_bias, scaled=scaled
        )
        experts = block.experts if isinstance(block, SharedExperts) else block
        if isinstance(experts, Experts):
            experts.down.in_prec = "f32"
        return block

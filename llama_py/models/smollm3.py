"""SmolLM3: every fourth layer has no RoPE (models/smollm3.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.hparams.layer_shape import ROPE_NORMAL, Rope
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights

ROPE_PERIOD = 4  # the last layer of each period has no RoPE


class SmolLm3HParams(WholeHParams):
    rope_type = ROPE_NORMAL

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if (il + 1) % ROPE_PERIOD else None


class SmolLm3(PlainDecoder):
    arch = "smollm3"
    HParams = SmolLm3HParams
    sizes = {36: "3B"}
    layer_sum = "ffn_out"

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, name="attn_out")

"""ChatGLM 3 and GLM-4 9B: gate and up are one matrix (models/chatglm.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, PlainHParams
from llama_py.weights import Weights


class ChatGlmHParams(PlainHParams):
    rope_type = ROPE_NORMAL


class ChatGlm(PlainDecoder):
    arch = "chatglm"
    HParams = ChatGlmHParams

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        names = {
            28: ("1.5B" if hp.n_head[0] == 16 else "6B"),
            40: ("4B" if hp.n_head[0] == 24 else "9B"),
        }
        return names.get(hp.n_layer, "?B")

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, act=SWIGLU, scaled=False)

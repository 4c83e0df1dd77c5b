"""Command R7B: Command R with sliding-window attention in most layers; only these use RoPE
(models/cohere2.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number, uint
from llama_py.hparams import HParams, WindowedHParams
from llama_py.hparams.layer_shape import Rope
from llama_py.models.command_r import CommandR, CommandRHParams
from llama_py.weights import Weights


class Cohere2HParams(WindowedHParams, CommandRHParams):
    n_pattern = 4
    n_swa: int = uint("attention.sliding_window", least=1)
    logit_scale: float = number("logit_scale")

    def rope(self, il: int) -> Rope | None:
        return HParams.rope(self, il) if self.swa_layers[il] else None


class Cohere2(CommandR):
    arch = "cohere2"
    HParams = Cohere2HParams
    sizes = {32: "8B"}

    def attention(self, w: Weights) -> Attention:
        return Attention(w, self.hp)

    def feed_forward(self, w: Weights) -> FeedForward:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[w.il].n_ff)

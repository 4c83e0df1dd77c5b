"""Qwen3-TTS's decoder: Qwen3-VL's with a separate head for the last tokens of the vocabulary, the
sound tokens (models/qwen3tts.cpp, qwen3vl.cpp)."""

from __future__ import annotations

import math

from ggml_py.errors import HParamsError
from ggml_py.ops import concat, repeat_4d, scale, view
from ggml_py.tensor import Tensor
from llama_py.blocks.pooling import Classifier
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.models.qwen3vl import Qwen3VL
from llama_py.weights import Weights

N_VOCAB_OUT = 3072  # not in files


class Qwen3TTS(Qwen3VL):
    arch = "qwen3tts"
    reranks = False

    def declare(self, w: Weights) -> None:
        super().declare(w)
        out = w.optional_linear("cls.output", self.hp.n_embd, self.hp.n_cls_out)
        self.classifier = None if out is None else Classifier(out=out)

    def declare_ends(self, w: Weights) -> None:
        hp, own = self.hp, w.has("output.weight")
        if own and hp.n_vocab < N_VOCAB_OUT:
            raise HParamsError(
                f"the vocabulary must have at least {N_VOCAB_OUT} tokens, which have a separate "
                f"LM head, got {hp.n_vocab}; convert the model again"
            )
        self.output_norm = w.norm("output_norm", hp.n_embd)
        self.output = w.output(hp.n_embd, N_VOCAB_OUT if own else hp.n_vocab)

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return self.output if self.output.weight.ne[1] == self.hp.n_vocab else None

    def logits(self, g: GraphBuilder, cur: Tensor, output: Linear | None) -> Tensor:
        """Compute logits; tokens outside the separate head get -inf."""
        logits = super().logits(g, cur, output)
        n_without = self.hp.n_vocab - logits.ne[0]
        if not n_without:
            return logits
        assert self.output_norm.weight is not None
        never = scale(view(self.output_norm.weight, (1,)), 0.0, -math.inf)
        return concat(repeat_4d(never, n_without, logits.ne[1], 1, 1), logits, 0)

"""Decoders some of whose layers keep a state in place of keys and values: those without key heads
(the part that models/granite-hybrid.cpp, jamba.cpp and lfm2.cpp have in common), or all but every
n-th (models/qwen35.cpp, minimax-01.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.models.trunks.decoder import Block


class MixedHParams(HParams):
    """Layers without key heads are recurrent."""

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0


class IntervalHParams(HParams):
    """Layers are recurrent as a list says, or all but every full_attention_interval-th."""

    usual_interval: ClassVar[int] = 4

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.recurrent_layers = self._load_recurrent_layers(keys)

    def _load_recurrent_layers(self, keys: Keys) -> tuple[bool, ...]:
        if keys.has("attention.recurrent_layers"):
            return keys.flags("attention.recurrent_layers", self.n_layer_all, longer=False)
        every = keys.uint("full_attention_interval", self.usual_interval)
        if every == 0:
            raise keys.error("full_attention_interval", "it must be at least 1")
        return tuple((il + 1) % every != 0 for il in range(self.n_layer_all))

    def layer_lists(self) -> dict[str, tuple[bool, ...] | int]:
        listed = {"attention.recurrent_layers": self.recurrent_layers}
        return super().layer_lists() | listed | {"full_attention_interval": 0}

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.recurrent_layers[il]


@dataclass(slots=True)
class OperatorLayer:
    """x + operator(norm(x)), then x + feed_forward(norm(x)).

    name      what the operator's result is called
    ffn_name  what the feed-forward's input is called in the end
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
        if last:  # only outputs go on
            cur, residual = g.outputs(cur, residual)
        if self.name:
            g.cb(cur, self.name, il)
        cur = add(residual, cur)
        normed = self.ffn_norm(g, cur, "ffn_norm", il)
        fed = self.feed_forward(g, normed, il)
        if self.ffn_name:
            g.cb(normed, self.ffn_name, il)
        return add(cur, fed)

"""Mistral 3 and Ministral 3: Llama; queries may be scaled by position
(models/mistral3.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.functions import scale_by_position
from llama_py.gguf.keys import Keys, number
from llama_py.graph.builder import GraphBuilder
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.llama import Llama, LlamaHParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class Mistral3HParams(LlamaHParams):
    """attn_temp_scale   growth of queries with the position; 0: no growth"""

    attn_temp_scale: float = number("attention.temperature_scale", 0.0)
    yarn_beta_fast: float = number("rope.scaling.yarn_beta_fast", 32.0, least=0)
    yarn_beta_slow: float = number("rope.scaling.yarn_beta_slow", 1.0, least=0)
    rope_yarn_log_mul: float = number("rope.scaling.yarn_log_multiplier", 0.0, least=0, most=1e6)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.attn_temp_scale and not self.n_ctx_orig_yarn:
            raise keys.error("rope.scaling.original_context_length", "must be at least 1")


class Mistral3(Llama):
    arch = "mistral3"
    HParams = Mistral3HParams
    hp: Mistral3HParams
    sizes = {26: "3B", 34: "8B", 40: "14B"}

    def attention(self, w: Weights, il: int) -> Block:
        kind = Mistral3Attention if self.hp.attn_temp_scale else Attention
        return kind(w, self.hp, out_bias=True, factors=self.factors, name="attn_out")


class Mistral3Attention(Attention):
    """Queries are scaled by position, in steps of the trained context."""

    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        hp = g.hp
        assert isinstance(hp, Mistral3HParams)
        q, k = super().place(g, qkv, il)
        q = scale_by_position(g, q, hp.n_ctx_orig_yarn, hp.attn_temp_scale)
        return g.cb(q, "Qcur_attn_temp_scaled", il), k

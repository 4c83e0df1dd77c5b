"""Checkpoints of DeciLM and Nemotron models with layers of different shapes
(conversion/deci.py)."""

from __future__ import annotations

from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.vocabulary import Vocabulary

LLAMA3_VOCAB = 128256
MULTIPLE = 256  # of sizes of feed-forward networks


class DeciConverter(LlamaConverter):
    arch = "deci"
    classes = ("DeciLMForCausalLM",)
    layers = {"self_attn.linear_attn": "attn_output"}

    @property
    def shapes(self) -> list[dict[str, Any]]:
        """Shapes of the layers; empty without block_configs."""
        found = self.find("block_configs") or []
        if found and (not isinstance(found, list) or len(found) != self.n_layer):
            raise ModelError(
                f"block_configs must have {self.n_layer} entries, one per layer, got "
                f"{str(found)[:50]}"
            )
        return found

    def heads(self) -> tuple[list[int], list[int]]:
        """Return the heads of queries and of keys of each layer. Layers without n_heads_in_group
        have a matrix (replace_with_linear), or no attention."""
        n_head, queries, keys = self.integer("num_attention_heads"), list[int](), list[int]()
        for block in self.shapes:
            group, linear = (block["attention"].get(k) for k in (GROUP, "replace_with_linear"))
            queries.append(n_head if group is not None or linear is True else 0)
            keys.append(n_head // group if group is not None else 0)
        return queries, keys

    def n_heads(self, layer: int | None, of_queries: bool) -> int:
        each = self.find("num_key_value_heads_per_layer")
        if layer is not None and each is not None and not of_queries:
            return int(each[layer])
        if layer is not None and self.shapes:
            return self.heads()[not of_queries][layer]
        return super().n_heads(layer, of_queries)

    def keys(self) -> None:
        out = self.out
        if not self.shapes:
            super().keys()
            each = self.find("num_key_value_heads_per_layer")
            if each is not None:
                out.array("attention.head_count_kv", each)
            return
        n_embd = self.integer("hidden_size")
        if (theta := self.rope.get("rope_theta")) is not None:
            out.f32("rope.freq_base", theta)
        queries, keys = self.heads()
        out.array("attention.head_count_kv", keys)
        out.array("attention.head_count", queries)
        out.array("feed_forward_length", [self._n_ff(b, n_embd) for b in self.shapes])
        out.u32("block_count", self.n_layer)
        out.u32("context_length", self.integer("max_position_embeddings"))
        out.u32("embedding_length", n_embd)
        out.f32("attention.layer_norm_rms_epsilon", self.find("rms_norm_eps"))
        for key in ("attention.key_length", "attention.value_length"):
            out.u32(key, n_embd // self.integer("num_attention_heads"))
        out.u32("general.file_type", self.file_type)
        out.u32("vocab_size", self.integer("vocab_size"))
        out.u32("rope.dimension_count", self.head_dim)

    def _n_ff(self, block: dict[str, Any], n_embd: int) -> int:
        size = int(2 * (block["ffn"].get("ffn_mult") or 0.0) * n_embd / 3)
        return -(-size // MULTIPLE) * MULTIPLE

    def vocabulary(self, v: Vocabulary) -> None:
        if self.config.get("vocab_size", LLAMA3_VOCAB) == LLAMA3_VOCAB:
            v.bpe()
        else:
            v.sentencepiece_json()


GROUP = "n_heads_in_group"

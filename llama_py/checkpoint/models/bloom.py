"""Checkpoints of BLOOM, GPT-NeoX and Falcon, with queries, keys and values by head
(conversion/bloom.py, gptneox.py, falcon.py)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import name_layers

FEED_FORWARD = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
BLOOM = {
    "input_layernorm": "attn_norm",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    **FEED_FORWARD,
}
NEOX = {
    "input_layernorm": "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    **FEED_FORWARD,
}
FALCON_CONTEXT = 2048  # config.json lacks it


class BloomConverter(Converter):
    arch = "bloom"
    classes: ClassVar[tuple[str, ...]] = ("BloomForCausalLM", "BloomModel")
    names = {
        "word_embeddings": "token_embd",
        "word_embeddings_layernorm": "token_embd_norm",
        "ln_f": "output_norm",
        "lm_head": "output",
        **name_layers("h.{}", BLOOM),
    }
    prefixes = ("transformer.",)

    @property
    def n_head(self) -> int:
        return self.integer("n_head", "num_attention_heads")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if ".query_key_value." in name:
            array = self.group_rows(array)
        yield from super().tensors(name, array, layer)

    def group_rows(self, array: LazyArray) -> LazyArray:
        """Return the rows of all queries, of all keys and of all values."""
        split = array.reshape(self.n_head, 3, -1, *array.shape[1:])
        return split.swap(0, 1).reshape(*array.shape)

    def keys(self) -> None:
        n_embd = self.integer("hidden_size", "n_embed")
        self.out.set_all({
            "context_length": self.config.get("seq_length", n_embd),
            "embedding_length": n_embd,
            "feed_forward_length": 4 * n_embd,
            "block_count": self.n_layer,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head,
            "attention.layer_norm_epsilon": self.find("layer_norm_epsilon"),
            "general.file_type": self.file_type,
        })  # fmt: skip


class GptNeoxConverter(BloomConverter):
    arch = "gptneox"
    classes = ("GPTNeoXForCausalLM",)
    names = {
        "embed_in": "token_embd",
        "final_layer_norm": "output_norm",
        "embed_out": "output",
        **name_layers("layers.{}", NEOX),
    }
    prefixes = ("gpt_neox.",)
    defaults = {"use_parallel_residual": True, "rotary_pct": 0.25}

    def keys(self) -> None:
        n_embd = self.integer("hidden_size")
        part = self.rope.get("partial_rotary_factor", self.find("rotary_pct"))
        self.out.set_all({
            "context_length": self.integer("max_position_embeddings"),
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.integer("intermediate_size"),
            "rope.dimension_count": int(part * (n_embd // self.n_head)),
            "attention.head_count": self.n_head,
            "use_parallel_residual": bool(self.find("use_parallel_residual")),
            "attention.layer_norm_epsilon": self.find("layer_norm_eps"),
        })  # fmt: skip


class FalconConverter(BloomConverter):
    """A group of query heads is stored with its key head and its value head."""

    arch = "falcon"
    classes = ("FalconForCausalLM", "RWForCausalLM")
    names = {**BloomConverter.names, **name_layers("h.{}", {"ln_attn": "attn_norm_2",
                                                          "ln_mlp": "attn_norm"})}  # fmt: skip

    @property
    def n_head(self) -> int:
        return self.integer("num_attention_heads", "n_head")

    @property
    def n_head_kv(self) -> int:
        """Transformers stores num_kv_heads even where multi_query sets it to 1."""
        is_new = self.find("new_decoder_architecture") or not self.find("multi_query")
        return self.find("num_kv_heads", "n_head_kv") or 1 if is_new else 1

    def group_rows(self, array: LazyArray) -> LazyArray:
        n_head, n_kv, size = self.n_head, self.n_head_kv, self.integer("hidden_size")
        rest = array.shape[1:]
        groups = array.reshape(n_kv, n_head // n_kv + 2, size // n_head, *rest)
        parts = groups.split([n_head // n_kv, 1, 1], 1)
        return concat([part.reshape(-1, *rest) for part in parts])

    def keys(self) -> None:
        n_embd = self.integer("hidden_size")
        self.out.set_all({
            "context_length": FALCON_CONTEXT,
            "tensor_data_layout": "jploski",
            "embedding_length": n_embd,
            "feed_forward_length": 4 * n_embd,
            "block_count": self.n_layer,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.layer_norm_epsilon": self.find("layer_norm_epsilon"),
            "general.file_type": self.file_type,
        })  # fmt: skip

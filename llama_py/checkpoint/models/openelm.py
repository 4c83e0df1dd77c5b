"""Checkpoints of OpenELM, with layers of different sizes (conversion/openelm.py)."""

from __future__ import annotations

from functools import cached_property

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import name_layers, pairs
from llama_py.checkpoint.vocabulary import Vocabulary

OPENELM = pairs("""
    attn_norm=attn_norm attn.qkv_proj=attn_qkv attn.q_norm=attn_q_norm attn.k_norm=attn_k_norm
    attn.out_proj=attn_output ffn_norm=ffn_norm ffn.proj_2=ffn_down
""")
EPSILON = 1e-6  # config.json lacks it


class OpenElmConverter(Converter):
    arch = "openelm"
    classes = ("OpenELMForCausalLM",)
    names = {
        "token_embeddings": "token_embd",
        "norm": "output_norm",
        **name_layers("layers.{}", OPENELM),
    }
    prefixes = ("transformer.",)

    @cached_property
    def n_ffs(self) -> list[int]:
        """Rows of the feed-forward matrices of each layer."""
        multipliers = self._find_list("ffn_multipliers")
        n_embd, divisor = self.integer("model_dim"), self.integer("ffn_dim_divisor")
        return [round_size(factor * n_embd, divisor) for factor in multipliers]

    def _find_list(self, name: str) -> list[int]:
        found = self.find(name)
        if not isinstance(found, list) or len(found) != self.n_layer:
            raise ModelError(
                f"{name} of OpenELM must have {self.n_layer} entries, one per layer, got "
                f"{str(found)[:50]}"
            )
        return found

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if layer is None or not name.endswith(".ffn.proj_1.weight"):
            yield from super().tensors(name, array, layer)
            return
        n_ff = self.n_ffs[layer] if layer < self.n_layer else 0
        yield f"blk.{layer}.ffn_gate.weight", array.rows(0, n_ff)
        yield f"blk.{layer}.ffn_up.weight", array.rows(n_ff)

    def keys(self) -> None:
        self.out.set_all({
            "block_count": self.n_layer,
            "context_length": self.integer("max_context_length"),
            "embedding_length": self.integer("model_dim"),
            "feed_forward_length": self.n_ffs,
            "attention.head_count": self._find_list("num_query_heads"),
            "attention.head_count_kv": self._find_list("num_kv_heads"),
            "rope.freq_base": self.find("rope_freq_constant"),
            "attention.layer_norm_rms_epsilon": EPSILON,
            "rope.dimension_count": self.integer("head_dim"),
            "attention.key_length": self.integer("head_dim"),
            "attention.value_length": self.integer("head_dim"),
            "general.file_type": self.file_type,
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        if not v.has("tokenizer.model"):
            raise ModelError(
                f"{self.folder.path}: OpenELM uses the tokenizer of Llama 2; copy its "
                "tokenizer.model into this folder"
            )
        v.sentencepiece()


def round_size(value: float, divisor: int) -> int:
    """Return the nearest multiple of divisor that is at least 0.9 * value."""
    found = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return found + divisor if found < 0.9 * value else found

"""Checkpoints of Qwen4-Exp: delta nets, hyper-connections and n-gram embeddings
(conversion/qwen4exp.py)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.models.qwen35 import Qwen35Converter
from llama_py.checkpoint.names import pairs

HASHES = {  # numbers of the n-grams' hash functions
    "ple_embedding.layer_multipliers": "ple.layer_multipliers",
    "ple_embedding.ngram_heads_offsets": "ple.head_offsets",
    "ple_embedding.ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
}
CENTERED = tuple(f".ple.norm_{part}.weight" for part in ("key", "query", "conv"))
MIXER = {
    "hc_norm": "hc_{}_norm",
    "input_mix_weight_down": "hc_{}_down",
    "input_mix_weight_up": "hc_{}_up",
    "block_inject_weight": "hc_{}_inject",
}
SHARD = ".ngram_embedding.shard_"


class Qwen4ExpConverter(Qwen35Converter):
    arch = "qwen4exp"
    classes = ("Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM")
    names = {
        **Qwen35Converter.names,
        **{f"model.hyper_connection_mixer.{module}": f"output_{new.replace('_{}', '')}"
           for module, new in MIXER.items()},
    }  # fmt: skip
    layers = {
        **{f"attn_hyper_connection.{module}": new.format("attn") for module, new in MIXER.items()},
        **{f"mlp_hyper_connection.{module}": new.format("ffn") for module, new in MIXER.items()},
        **pairs("""
            self_attn.indexer.q_layernorm=indexer.q_norm
            self_attn.indexer.k_layernorm=indexer.k_norm ple.key_proj=ple_key
            ple.value_proj=ple_value ple.norm_key=ple_norm_key ple.norm_query=ple_norm_query
            ple.norm_conv=ple_norm_conv ple.conv1d=ple_conv1d
        """),
    }
    adds_one = CENTERED
    has_nextn = False
    needed = (
        "hc_count", "hc_lowrank", "indexer_n_heads", "indexer_head_dim", "indexer_budget",
        "indexer_compress_ratio", "layer_types", "ple_layer_ids",
    )  # fmt: skip

    def keys(self) -> None:
        super().keys()
        out, ratio = self.out, self.integer("indexer_compress_ratio")
        out.u32("hyper_connection.count", self.integer("hc_count"))
        out.u32("hyper_connection.low_rank", self.integer("hc_lowrank"))
        out.u32("attention.indexer.head_count", self.integer("indexer_n_heads"))
        out.u32("attention.indexer.key_length", self.integer("indexer_head_dim"))
        out.u32("attention.indexer.top_k", self.integer("indexer_budget"))
        types = self.find("layer_types")
        ratios = [ratio if t == "full_attention" else 0 for t in types]
        out.array("attention.compress_ratios", ratios)
        if layers := self.find("ple_layer_ids"):
            self._ngram_keys([i - 1 for i in layers])

    def _ngram_keys(self, layers: list[int]) -> None:
        out = self.out
        out.array("ple.layers", layers)
        out.u32("ple.ngram_size", self.integer("ngram_size"))
        out.u32("ple.heads_per_ngram", self.integer("heads_per_ngram"))
        out.u32("ple.conv_kernel", self.integer("ple_conv_kernel_size"))
        eos = self.find("eos_token_id")
        out.u32("ple.eos_token_id", eos[-1] if isinstance(eos, list) else eos)
        if (image := self.find("image_token_id")) is not None:
            out.u32("ple.image_token_id", image)
        if self.shards:
            out.u32("embedding_length_per_layer_input", self.shards[0].shape[-1])
        for module, key in HASHES.items():
            found = (t for name, t in self.folder.tensors.items() if name.endswith(module))
            if (stored := next(found, None)) is None:
                raise ModelError(f"{self.folder.path}: {module} is missing; download all files")
            out.add("arr[u64]", key, [int(x) for x in stored.integers()])

    @cached_property
    def shards(self) -> dict[int, LazyArray]:
        """Parts of the table of n-grams, by number."""
        return {}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith((*HASHES,)):
            return
        if SHARD in name:
            number = int(name.rpartition(SHARD)[2].partition(".")[0])
            self.shards[number] = array
            if len(self.shards) == self.integer("split_ngram_parts"):
                parts = [self.shards[i] for i in sorted(self.shards)]
                yield "per_layer_token_embd.weight", concat(parts)
        elif ".indexer.index_qk_proj.weight" in name:
            n = self.integer("indexer_n_heads") * self.integer("indexer_head_dim")
            yield f"blk.{layer}.indexer.q_proj.weight", array.rows(0, n)
            yield f"blk.{layer}.indexer.k_proj.weight", array.rows(n)
        else:
            yield from super().tensors(name, array, layer)

    def check_complete(self) -> None:
        super().check_complete()
        n: Any = self.find("split_ngram_parts")
        if self.shards and len(self.shards) != n:
            raise ModelError(
                f"{self.folder.path}: only {len(self.shards)} of {n} parts of the n-gram table "
                "exist; download all files of weights"
            )

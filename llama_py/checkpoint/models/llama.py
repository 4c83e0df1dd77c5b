"""Checkpoints of Llama, Mistral, Mixtral and models like them (conversion/llama.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.merge import ExpertMerger
from llama_py.checkpoint.names import LAYERS, LLAMA, name_layers
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

CODE_LLAMA, GRANITE = 32016, 49152  # sizes of vocabularies
END_OF_INFILL = 32010  # a token of Code Llama
MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}


class LlamaConverter(Converter):
    arch = "llama"
    classes = (
        "LLaMAForCausalLM",
        "LlamaForCausalLM",
        "LlamaModel",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "VLlama3ForCausalLM",
        "LlavaForConditionalGeneration",
        "VoxtralForConditionalGeneration",
        "IQuestCoderForCausalLM",
    )
    names = {**LLAMA, **name_layers(LAYERS, MIXTRAL)}
    permutes = True  # for RoPE, which rotates neighbors here, and halves in transformers

    def select(self, name: str) -> str | None:
        name = name.replace("text_model.", "")  # SmolVLM
        selected = super().select(name)
        is_bare = self.folder.model_name == "LlamaModel"
        return f"model.{selected}" if is_bare and selected else selected

    def keys(self) -> None:
        if self.folder.model_name == "VLlama3ForCausalLM":
            self.config.setdefault("num_attention_heads", 32)
        super().keys()
        self.out.u32("vocab_size", self.integer("vocab_size"))
        self.out.u32("rope.dimension_count", self.head_dim)

    def extra(self) -> Iterator[tuple[str, LazyArray]]:
        if str(self.full_rope.get("rope_type")).lower() == "llama3":
            yield "rope_freqs.weight", LazyArray.from_values(self.llama3_factors())

    def llama3_factors(self) -> np.ndarray:
        """Return the factors of frequencies of Llama 3.1, [n_rot / 2]."""
        rope, dim = self.full_rope, self.head_dim
        base = np.float32(rope.get("rope_theta", 10000.0))
        freqs = 1 / base ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))
        factor, context = (
            rope.get("factor", 8.0),
            rope.get("original_max_position_embeddings", 8192),
        )
        low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
        wavelength = np.float32(2 * math.pi) / freqs
        smooth = (np.float32(context) / wavelength - np.float32(low)) / np.float32(high - low)
        between = 1 / ((1 - smooth) / np.float32(factor) + smooth)
        long = np.where(wavelength > context / low, np.float32(factor), between)
        return np.where(wavelength < context / high, np.float32(1), long)

    def tensors(
        self, name: str, array: LazyArray, layer: int | None
    ) -> Iterator[tuple[str, LazyArray]]:
        if self.permutes and name.endswith(("q_proj.weight", "q_proj.bias")):
            array = permute(array, self.integer("n_heads", "num_attention_heads"))
        elif self.permutes and name.endswith(("k_proj.weight", "k_proj.bias")):
            n_head_kv = self.find("n_kv_heads", "num_key_value_heads")
            array = permute(array, n_head_kv or self.integer("n_heads", "num_attention_heads"))
        merged = self.experts.merge(name, array)
        for new_name, new in ((name, array),) if merged is None else merged:
            yield from super().tensors(new_name, new, layer)

    @cached_property
    def experts(self) -> ExpertMerger:
        return ExpertMerger(self.find("num_local_experts") or 0, ("w1", "w2", "w3"))

    def check_complete(self) -> None:
        self.experts.check_complete(self.folder.path)

    def vocabulary(self, v: Vocabulary) -> None:
        prefix = self.folder.json("tokenizer_config.json").get("add_prefix_space")
        if prefix is not None:
            self.out.boolean("tokenizer.ggml.add_space_prefix", prefix)
        if v.has("tokenizer.model"):
            v.sentencepiece()
        elif v.is_sentencepiece_json:
            v.sentencepiece_json()
        else:
            v.bpe()
        n_vocab = self.config.get("vocab_size", 32000)
        if n_vocab == CODE_LLAMA:
            special = SpecialTokens(self.folder, roles=("eot",))
            special.set("eot", END_OF_INFILL)
            special.write(self.out)
        if n_vocab == GRANITE:
            self.out.boolean("tokenizer.ggml.add_bos_token", False)


def permute(array: LazyArray, n_head: int) -> LazyArray:
    """Reorder the rows of each head: alternately from its first and its second half."""
    n, *rest = array.shape
    return array.reshape(n_head, 2, n // n_head // 2, *rest).swap(1, 2).reshape(n, *rest)

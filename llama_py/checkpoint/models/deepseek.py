"""Checkpoints of DeepSeek, V2, V3, V3.2 and DeepSeek-OCR, and models like them: Kimi-K2, Youtu
(conversion/deepseek.py)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.experts import ExpertsConverter, NextnConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.names import INDEXER, LATENT, NEXTN, ROUTED_EXPERTS
from llama_py.checkpoint.rotary import permute
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_COUNT,
    EXPERT_SIZE,
    INDEXER_KEYS,
    QUERY_RANK,
    ROTARY_SIZE,
    SHARED_COUNT,
    VOCAB_SIZE,
)
from llama_py.checkpoint.tiktoken import KIMI, kimi_vocabulary
from llama_py.checkpoint.vocabulary import Vocabulary

OCR = ("DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM", "UnlimitedOCRForCausalLM")
OCR_TEMPLATE = "{% for m in messages %}{{m['content']}}{% endfor %}"
LOG_MULTIPLIER = 0.1  # of mscale_all_dim


class DeepseekConverter(ExpertsConverter):
    arch = "deepseek"
    classes: ClassVar[tuple[str, ...]] = ("DeepseekForCausalLM",)
    layers = ROUTED_EXPERTS
    tokenizer = "either"

    def keys(self) -> None:
        super().keys()
        self.out.u32("rope.dimension_count", self.head_dim)
        self.out.text("rope.scaling.type", "none")
        self.copy(DENSE_LAYERS, VOCAB_SIZE, EXPERT_SIZE)
        self.out.f32("expert_weights_scale", 1.0)
        self.copy(EXPERT_COUNT, SHARED_COUNT)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(("q_proj.weight", "q_proj.bias")):
            array = permute(array, self.integer("num_attention_heads"))
        elif name.endswith(("k_proj.weight", "k_proj.bias")):
            array = permute(array, self.integer("num_key_value_heads", "num_attention_heads"))
        yield from super().tensors(name, array, layer)


class LatentConverter(ExpertsConverter):
    """A model that computes keys and values from one latent vector per token.

    llama.cpp multiplies queries by the keys' part of kv_b_proj, and the result by the values' part;
    the keys' part is stored transposed.
    """

    def kv_sizes(self, layer: int | None) -> tuple[int, int, int]:
        """Return the number of heads, and the sizes of their keys without RoPE and of values."""
        heads = self.integer("num_key_value_heads", "num_attention_heads")
        return heads, self.integer("qk_nope_head_dim"), self.integer("v_head_dim")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if not name.endswith("kv_b_proj.weight"):
            yield from super().tensors(name, array, layer)
            return
        n_head, n_key, n_value = self.kv_sizes(layer)
        both = array.reshape(n_head, n_key + n_value, array.shape[-1])
        keys, values = both.split([n_key, n_value], 1)
        for part, made in (("k_b_proj", keys.swap(1, 2)), ("v_b_proj", values)):
            yield from super().tensors(name.replace("kv_b_proj", part), made, layer)

    def latent_keys(self, has_values: bool = True) -> None:
        """Set the sizes of keys and values: of the latent vector, and of the heads."""
        out, rank = self.out, self.integer("kv_lora_rank")
        n_rot = self.integer("qk_rope_head_dim")
        out.u32("attention.kv_lora_rank", rank)
        out.u32("attention.key_length", rank + n_rot)
        if has_values:
            out.u32("attention.value_length", rank)
        out.u32("attention.key_length_mla", self.integer("qk_nope_head_dim") + n_rot)
        out.u32("attention.value_length_mla", self.integer("v_head_dim"))


class DeepseekV2Converter(LatentConverter, NextnConverter):
    """A model without its layers that draft tokens."""

    arch = "deepseek2"
    classes: ClassVar[tuple[str, ...]] = (
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekOCRForCausalLM",
        "UnlimitedOCRForCausalLM",
        "KimiVLForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "YoutuForCausalLM",
        "YoutuVLForConditionalGeneration",
    )
    layers = {**ROUTED_EXPERTS, **LATENT, **NEXTN}
    drops_tied_output = True
    has_nextn = False

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        whole = folder.whole_config.get("architectures")
        self.is_ocr = isinstance(whole, list) and bool(whole) and whole[0] in OCR
        if self.is_ocr:
            self.arch = "deepseek2-ocr"
        super().__init__(folder, options)
        if self.is_ocr:
            self.out.text("tokenizer.chat_template", OCR_TEMPLATE)

    def select(self, name: str) -> str | None:
        if "sam_model" in name or "qwen2_model" in name:  # images of DeepSeek-OCR
            return None
        return super().select(name)

    def keys(self) -> None:
        if not self.is_ocr:
            self.config["num_key_value_heads"] = 1
        self.config.setdefault("rms_norm_eps", 1e-6)
        super().keys()
        out, n_experts = self.out, self.find("n_routed_experts")
        dense = self.find("first_k_dense_replace")
        if dense is None:
            dense = 0 if n_experts is not None else self.integer("num_hidden_layers")
        out.u32("leading_dense_block_count", dense)
        self.config.setdefault("kv_lora_rank", 512)
        self.copy(VOCAB_SIZE, QUERY_RANK)
        if not self.is_ocr:
            self.latent_keys()
        self.config.setdefault("n_shared_experts", 0)
        sizes = ("moe_intermediate_size", "intermediate_size")
        self.copy(
            ("expert_feed_forward_length", "u32!", sizes),
            ("expert_count", "u32", ("n_routed_experts",)),
            SHARED_COUNT,
            ("expert_weights_scale", "f32", ("routed_scaling_factor",)),
        )
        if self.find("norm_topk_prob"):
            out.boolean("expert_weights_norm", True)
        self.copy(ROTARY_SIZE)
        if self.is_ocr and (window := self.find("sliding_window_size", "sliding_window")):
            out.u32("attention.sliding_window", window)
        if (scale := self.rope.get("mscale_all_dim")) is not None:
            out.f32("rope.scaling.yarn_log_multiplier", LOG_MULTIPLIER * scale)

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has(KIMI) and not v.has("tokenizer.json"):
            kimi_vocabulary(v)
        else:
            super().vocabulary(v)


class SparseConverter(DeepseekV2Converter):
    """A model that attends to the tokens that an indexer chooses."""

    layers = INDEXER
    has_nextn = True


class DeepseekV32Converter(SparseConverter):
    arch = "deepseek32"
    classes: ClassVar[tuple[str, ...]] = ("DeepseekV32ForCausalLM",)

    def keys(self) -> None:
        super().keys()
        self.nextn_key()
        self.copy(*INDEXER_KEYS)

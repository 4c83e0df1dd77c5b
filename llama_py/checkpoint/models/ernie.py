"""Checkpoints of ERNIE 4.5, dense and with experts, and PaddleOCR-VL (conversion/ernie.py)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.names import ROUTED_EXPERTS
from llama_py.checkpoint.vocabulary import Vocabulary

DRAFT = (
    "model.mtp_block.", "model.mtp_emb_norm.", "model.mtp_hidden_norm.", "model.mtp_linear_proj.",
)  # fmt: skip


class ErnieConverter(Converter):
    arch = "ernie4_5"
    classes: ClassVar[tuple[str, ...]] = ("Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM")

    def select(self, name: str) -> str | None:
        return super().select(name.replace("ernie.", "model."))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "qkv_proj" in name:
            size = self.head_dim
            n_key = size * self.integer("num_key_value_heads")
            sizes = [size * self.integer("num_attention_heads"), n_key, n_key]
            for part, made in zip("qkv", array.split(sizes), strict=True):
                new_name = name.replace("qkv_proj", f"{part}_proj")
                yield from super().tensors(new_name, made, layer)
        elif "up_gate_proj" in name:
            halves = array.split([array.shape[0] // 2] * 2)
            for part, made in zip(("gate_proj", "up_proj"), halves, strict=True):
                yield from super().tensors(name.replace("up_gate_proj", part), made, layer)
        else:
            yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
        v.write_space_prefix()


class PaddleOcrConverter(ErnieConverter):
    arch = "paddleocr"
    classes: ClassVar[tuple[str, ...]] = ("PaddleOCRVLForConditionalGeneration",)


class ErnieMoeConverter(ErnieConverter, ExpertsConverter):
    arch = "ernie4_5-moe"
    classes: ClassVar[tuple[str, ...]] = ("Ernie4_5_MoeForCausalLM",)
    layers = {**ROUTED_EXPERTS, "mlp.moe_statics.e_score_correction": "exp_probs_b"}
    skipped = DRAFT
    parts = ("gate_proj", "up_proj", "down_proj")

    def keys(self) -> None:
        super().keys()
        self.copy(
            ("expert_count", "u32!", ("moe_num_experts",)),
            ("expert_used_count", "u32!", ("moe_k",)),
            ("interleave_moe_layer_step", "u32!", ("moe_layer_interval",)),
            ("leading_dense_block_count", "u32!", ("moe_layer_start_index",)),
            ("expert_feed_forward_length", "u32", ("moe_intermediate_size",)),
            ("expert_shared_count", "u32", ("moe_num_shared_experts",)),
        )
        length, heads = self.find("intermediate_size"), self.find("num_key_value_heads")
        if self.find("moe_num_shared_experts") and length is not None and heads:
            self.out.u32("expert_shared_feed_forward_length", length // heads)

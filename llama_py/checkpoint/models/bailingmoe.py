"""Checkpoints of Ling (Bailing MoE) 1 and 2, and Sarvam (conversion/bailingmoe.py)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.names import LLAMA, NEXTN, ROUTED_EXPERTS
from llama_py.checkpoint.rotary import permute
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_NORM,
    EXPERT_SCALE,
    EXPERT_SIZE,
    SHARED_COUNT,
    VOCAB_SIZE,
)

EMBEDDINGS = {"model.word_embeddings": "token_embd"}


class BailingMoeConverter(ExpertsConverter):
    arch = "bailingmoe"
    classes: ClassVar[tuple[str, ...]] = ("BailingMoeForCausalLM",)
    names = {**LLAMA, **EMBEDDINGS}
    layers = ROUTED_EXPERTS

    def keys(self) -> None:
        super().keys()
        self.out.u32("rope.dimension_count", self.head_dim)
        self.copy(DENSE_LAYERS, VOCAB_SIZE, EXPERT_SIZE)
        self.out.f32("expert_weights_scale", 1.0)
        self.copy(SHARED_COUNT, EXPERT_NORM)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        n_head, n_key = self.integer("num_attention_heads"), self.integer("num_key_value_heads")
        if name.endswith("attention.dense.weight"):
            yield f"blk.{layer}.attn_output.weight", array
        elif name.endswith("query_key_value.weight"):
            size = self.head_dim
            q, k, v = array.split([n_head * size, n_key * size, n_key * size], array.ndim - 2)
            yield f"blk.{layer}.attn_q.weight", permute(q, n_head)
            yield f"blk.{layer}.attn_k.weight", permute(k, n_key)
            yield f"blk.{layer}.attn_v.weight", v
        elif name == "lm_head.weight" and self.find("norm_head"):
            yield "output.weight", array.map(_normalize)
        else:
            yield from super().tensors(name, array, layer)


def _normalize(x: Array) -> Array:
    """Divide columns by their lengths."""
    length = np.sqrt((x.astype(np.float32) ** 2).sum(axis=0, keepdims=True))
    made: Array = x / (length + np.float32(1e-7))
    return made


class BailingMoeV2Converter(ExpertsConverter):
    arch = "bailingmoe2"
    classes: ClassVar[tuple[str, ...]] = ("BailingMoeV2ForCausalLM",)
    names = {**LLAMA, **EMBEDDINGS}
    layers = {
        **ROUTED_EXPERTS,
        **NEXTN,
        "mlp.gate.expert_bias": "exp_probs_b",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "attention.query_layernorm": "attn_q_norm",
        "attention.key_layernorm": "attn_k_norm",
        "final_layernorm": "layer_output_norm",
    }
    suffixes = {".expert_bias": ".bias"}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_layer += self.find("num_nextn_predict_layers") or 0

    @property
    def n_rot(self) -> int:
        return int(self.head_dim * self.rope.get("partial_rotary_factor", 0.5))

    def keys(self) -> None:
        super().keys()
        self.out.u32("rope.dimension_count", self.n_rot)
        self.copy(DENSE_LAYERS, VOCAB_SIZE, EXPERT_SIZE)
        n_shared = self.integer("num_shared_experts")
        length = self.find("moe_shared_expert_intermediate_size")
        length = length or self.integer("moe_intermediate_size") * n_shared
        self.out.u32("expert_shared_feed_forward_length", length)
        drafts = ("nextn_predict_layers", "u32", ("num_nextn_predict_layers",))
        self.copy(EXPERT_SCALE, SHARED_COUNT, EXPERT_NORM, drafts)


class SarvamMoeConverter(BailingMoeV2Converter):
    """RoPE rotates whole heads; the biases of the experts' scores have the mean 0."""

    classes: ClassVar[tuple[str, ...]] = (
        "SarvamMoEForCausalLM",
        "modeling_sarvam_moe.SarvamMoEForCausalLM",
    )

    @property
    def n_rot(self) -> int:
        return self.head_dim

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(".expert_bias.bias"):
            array = array.map(lambda x: x - x.mean())
        yield from super().tensors(name, array, layer)

"""Checkpoints of GLM-4 to GLM-5.3, and Solar-Open (conversion/glm.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from ggml_py.types import F32, GGMLType
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.experts import ExpertsConverter, NextnConverter
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.deepseek import DeepseekV2Converter, SparseConverter
from llama_py.checkpoint.models.kimi_linear import DeltaConverter
from llama_py.checkpoint.names import (
    DELTA_ATTENTION,
    HEAD_NORMS,
    INDEXER,
    LATENT,
    NEXTN,
    ROUTED_EXPERTS,
)
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_NORM,
    EXPERT_SCALE,
    EXPERT_SIZE,
    HYPER_CONNECTION,
    INDEXER_KEYS,
    KEY_RANK,
    SHARED_COUNT,
    VOCAB_SIZE,
)
from llama_py.checkpoint.values import decay

ROTATED = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias")
NORMS = {
    "post_attention_layernorm": "ffn_norm",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate_up_proj": "ffn_up",
}
GLM = {"bos": "[gMASK]", "eot": "<|user|>", "unk": "<|endoftext|>", "eom": "<|observation|>"}
GLM4 = {"eos": "<|endoftext|>", "eot": "<|user|>", "unk": "<|endoftext|>", "bos": "<|endoftext|>"}
SOLAR = {
    "eos": "<|endoftext|>", "eot": "<|endoftext|>", "unk": "<unk>", "bos": "<|startoftext|>",
}  # fmt: skip
MOE_KEYS = (
    ("expert_count", "u32", ("n_routed_experts",)),
    ("expert_feed_forward_length", "u32", ("moe_intermediate_size",)),
    ("expert_shared_count", "u32", ("n_shared_experts",)),
    ("leading_dense_block_count", "u32", ("first_k_dense_replace",)),
)


class Glm4Converter(Converter):
    arch = "glm4"
    classes: ClassVar[tuple[str, ...]] = ("Glm4ForCausalLM", "Glm4vForConditionalGeneration")
    layers = {**NORMS, **NEXTN}
    roles = GLM4

    @property
    def n_rot(self) -> int:
        return int(self.head_dim * self.rope.get("partial_rotary_factor", 0.5))

    def keys(self) -> None:
        super().keys()
        self.out.u32("rope.dimension_count", self.n_rot)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "mrope_section" in self.rope and name.endswith(ROTATED):
            array = join_halves(array, self.head_dim, self.n_rot)
        yield from super().tensors(name, array, layer)


def join_halves(array: LazyArray, head_dim: int, n_rot: int) -> LazyArray:
    """Reorder the rows that RoPE rotates in each head: rows in pairs become two halves."""
    n, *rest = array.shape
    heads = array.reshape(n // head_dim, head_dim, *rest)
    rotated = heads.rows(0, n_rot, 1).reshape(n // head_dim, n_rot // 2, 2, *rest).swap(1, 2)
    rotated = rotated.reshape(n // head_dim, n_rot, *rest)
    return concat([rotated, heads.rows(n_rot, None, 1)], 1).reshape(n, *rest)


class GlmOcrConverter(Glm4Converter):
    classes: ClassVar[tuple[str, ...]] = ("GlmOcrForConditionalGeneration",)

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_layer += self.find("num_nextn_predict_layers") or 0

    own_keys = (("nextn_predict_layers", "u32", ("num_nextn_predict_layers",)),)


class Glm4MoeConverter(ExpertsConverter, NextnConverter):
    arch = "glm4moe"
    classes: ClassVar[tuple[str, ...]] = ("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration")
    layers = {
        **ROUTED_EXPERTS,
        **HEAD_NORMS,
        **NEXTN,
        "post_attention_layernorm": "post_attention_norm",
    }
    roles = GLM

    def keys(self) -> None:
        super().keys()
        part = self.rope.get("partial_rotary_factor", 0.5)
        self.out.u32("rope.dimension_count", int(self.head_dim * part))
        self.copy(*MOE_KEYS)
        self.set_gating("sigmoid")
        self.copy(
            ("expert_weights_scale", "f32", ("routed_scaling_factor",)),
            ("expert_weights_norm", "bool", ("norm_topk_prob",)),
        )
        self.nextn_key()


class SolarOpenConverter(Glm4MoeConverter):
    classes: ClassVar[tuple[str, ...]] = ("SolarOpenForCausalLM",)
    roles = SOLAR


class Glm4MoeLiteConverter(DeepseekV2Converter):
    classes: ClassVar[tuple[str, ...]] = ("Glm4MoeLiteForCausalLM",)
    has_nextn = True
    roles = GLM

    def keys(self) -> None:
        super().keys()
        self.draft_key()


class GlmMoeDsaConverter(SparseConverter):
    arch = "glm-dsa"
    classes: ClassVar[tuple[str, ...]] = ("GlmMoeDsaForCausalLM",)
    roles = GLM

    def keys(self) -> None:
        super().keys()
        part = self.rope.get("partial_rotary_factor", 1.0)
        self.out.u32("rope.dimension_count", int(self.integer("qk_rope_head_dim") * part))
        self.nextn_key()
        self.copy(*INDEXER_KEYS)
        if (types := self.find("indexer_types")) is not None:
            self.out.array("attention.indexer.types", [t == "full" for t in types])


HYPER = re.compile(r".*\.(hc_(attn|ffn)_(fn|base|scale)|index_kpool_compress_(ape|gate))")
CONNECTIONS = {
    f"hc_{part}_{kind}": f"hc_{part}_{kind}"
    for part in ("attn", "ffn")
    for kind in ("fn", "base", "scale")
}
POOL = {
    f"self_attn.indexer.index_kpool_compress_{kind}": f"indexer_compressor_{kind}"
    for kind in ("gate", "ape")
}
EXACT = ("hc_attn_", "hc_ffn_", "indexer_compressor_", "ssm_a", "ssm_dt", "exp_probs_b")


class Glm5NextConverter(DeltaConverter, NextnConverter):
    arch = "glm5-next"
    classes: ClassVar[tuple[str, ...]] = ("Glm5NextForConditionalGeneration",)
    layers = {
        **ROUTED_EXPERTS,
        **LATENT,
        **DELTA_ATTENTION,
        **INDEXER,
        **NEXTN,
        **CONNECTIONS,
        **POOL,
    }
    drops_tied_output = True
    roles = GLM

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.config.pop("head_dim", None)

    def kv_sizes(self, layer: int | None) -> tuple[int, int, int]:
        return self.integer("num_attention_heads"), *super().kv_sizes(layer)[1:]

    def is_full(self, layer: int) -> bool:
        types = self.find("layer_types")
        if not isinstance(types, list):
            raise self.refuse(("layer_types",))
        return layer >= len(types) or types[layer] != "linear_attention"

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        yield from super().tensors(
            f"{name}.weight" if HYPER.fullmatch(name) else name, array, layer
        )

    def decays(self, array: LazyArray) -> LazyArray:
        return array.reshape(-1).rows(0, self.integer("num_attention_heads")).map(decay)

    def forced_type(self, name: str, array: LazyArray) -> GGMLType | None:
        return F32 if any(part in name for part in EXACT) else None

    def keys(self) -> None:
        super().keys()
        out = self.out
        kinds = [int(self.is_full(i)) for i in range(self.n_layer)]
        out.array("attention.head_count_kv", kinds)
        self.copy(VOCAB_SIZE)
        out.f32("attention.layer_norm_epsilon", 1e-6)
        self.draft_key()
        self.delta_keys()
        if self.find("qk_rope_head_dim") != 0 or not self.find("mla_use_nope"):
            raise self.refuse(("qk_rope_head_dim",), "0, as in GLM-5.3")
        self.copy(("attention.q_lora_rank", "u32!", ("q_lora_rank",)), KEY_RANK)
        out.u32("rope.dimension_count", 0)
        self.latent_keys()
        self.copy(*INDEXER_KEYS, ("attention.indexer.kpool", "u32!", ("index_kpool",)))
        tail = self.config.get("index_kpool_always_select_tail", True)
        out.boolean("attention.indexer.kpool_select_tail", tail)
        if (types := self.find("indexer_types")) is not None:
            out.array("attention.indexer.types", [t == "full" for t in types])
        self.copy(
            *HYPER_CONNECTION, DENSE_LAYERS, EXPERT_SIZE, SHARED_COUNT, EXPERT_SCALE, EXPERT_NORM
        )
        if (limit := self.find("swiglu_limit")) is not None:
            out.array("swiglu_clamp_exp", [limit] * self.n_layer)
            out.array("swiglu_clamp_shexp", [limit] * self.n_layer)

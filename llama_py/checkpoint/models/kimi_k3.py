"""Checkpoints of Kimi-K3: residuals across layers, experts in a smaller space
(conversion/kimi_k3.py)."""

from __future__ import annotations

import re

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, stack
from llama_py.checkpoint.models.kimi_linear import SPARSE, DeltaConverter, write_vocabulary
from llama_py.checkpoint.models.qwen3next import decay
from llama_py.checkpoint.names import DELTA_ATTENTION, LATENT, LAYERS, LLAMA, name_layers
from llama_py.checkpoint.nvfp4 import take_mxfp4
from llama_py.checkpoint.vocabulary import Vocabulary

PACKED = re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w\d)\.weight_packed")
RESIDUAL = re.compile(r"(.*\b(?:self_attention|mlp|output_attn)_res)_(norm|proj)\.weight")
RESIDUALS = {"self_attention_res": "attn_res_score", "mlp_res": "ffn_res_score"}
ROUTED = {
    f"block_sparse_moe.routed_expert_{part}": f"ffn_routed_{tensor}"
    for part, tensor in (("down_proj", "down"), ("up_proj", "up"), ("norm", "norm"))
}


class KimiK3Converter(DeltaConverter):
    arch = "kimi-k3"
    classes = ("KimiK3ForConditionalGeneration",)
    names = {
        **LLAMA,
        **name_layers(LAYERS, {**LATENT, **DELTA_ATTENTION, **SPARSE, **ROUTED, **RESIDUALS}),
        "model.output_attn_res": "output_res_score",
    }
    parts = ("w1", "w2", "w3")

    def select(self, name: str) -> str | None:
        return None if name.startswith(("vision_tower.", "mm_projector.")) else super().select(name)

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        if (self.config.get("quantization_config") or {}).get("format") != "mxfp4-pack-quantized":
            yield from super().take_blocks(stored)
            return
        yield from take_mxfp4(self, stored, PACKED)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if match := RESIDUAL.fullmatch(name):
            yield from self._residual(match[1], match[2], array)
        elif name.endswith(".self_attn.g_proj.weight"):
            kind = "attn_gate" if self.is_full(layer or 0) else "ssm_g"
            yield f"blk.{layer}.{kind}.weight", array
        else:
            yield from super().tensors(name, array, layer)

    def decays(self, array: LazyArray) -> LazyArray:
        return array.rows(0, self.integer("num_attention_heads")).map(decay)

    def _residual(self, path: str, part: str, array: LazyArray) -> NamedArrays:
        """Yield the product of a norm's weights and a projection, after both are read."""
        waiting: dict[str, dict[str, LazyArray]] = self.__dict__.setdefault("_residuals", {})
        parts = waiting.setdefault(path, {})
        parts[part] = array.reshape(-1)
        if len(parts) < 2:
            return
        del waiting[path]
        both = stack([parts["norm"], parts["proj"]])

        def make() -> Array:
            norm, projection = both.read().astype(np.float32)
            product: Array = norm * projection
            return product

        yield self.rename(f"{path}.weight"), LazyArray(both.shape[1:], np.float32, make)

    def check_complete(self) -> None:
        super().check_complete()
        for path in self.__dict__.get("_residuals", {}):
            raise self.refuse((f"the norm or the projection of {path}",))

    def keys(self) -> None:
        self.config["num_key_value_heads"] = 1
        super().keys()
        self.copy((("vocab_size", "u32!", ("vocab_size",)),))
        self.delta_keys()
        self.copy((("attention.q_lora_rank", "u32", ("q_lora_rank",)),))
        self.out.u32("attention.kv_lora_rank", self.integer("kv_lora_rank"))
        self.out.u32("rope.dimension_count", self.integer("qk_rope_head_dim"))
        self.latent_keys()
        self.copy(
            (
                ("expert_feed_forward_length", "u32!", ("moe_intermediate_size",)),
                ("expert_shared_count", "u32!", ("num_shared_experts",)),
                ("leading_dense_block_count", "u32!", ("first_k_dense_replace",)),
                ("expert_weights_scale", "f32!", ("routed_scaling_factor",)),
                ("expert_weights_norm", "bool!", ("moe_renormalize",)),
            )
        )
        self.set_gating("sigmoid")
        self.copy(
            (
                ("expert_latent_length", "u32", ("routed_expert_hidden_size",)),
                ("activation.situ_beta", "f32!", ("activation_situ_beta",)),
                ("activation.situ_linear_beta", "f32!", ("activation_situ_linear_beta",)),
                ("attn_res.block_size", "u32!", ("attn_res_block_size",)),
            )
        )

    def vocabulary(self, v: Vocabulary) -> None:
        write_vocabulary(v)
        if (eos := self.find("eos_token_id")) is not None:
            self.out.u32("tokenizer.ggml.eos_token_id", eos)

"""Checkpoints of Kimi-K3: residuals across layers, experts in a smaller space
(conversion/kimi_k3.py)."""

from __future__ import annotations

import re

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, stack
from llama_py.checkpoint.models.kimi_linear import SPARSE, DeltaConverter, write_vocabulary
from llama_py.checkpoint.names import DELTA_ATTENTION, LATENT, LLAMA
from llama_py.checkpoint.nvfp4 import take_mxfp4
from llama_py.checkpoint.shared_keys import (
    DENSE_LAYERS,
    EXPERT_SCALE,
    EXPERT_SIZE,
    KEY_RANK,
    QUERY_RANK,
    ROTARY_SIZE,
    SHARED_COUNT,
    VOCAB_SIZE,
)
from llama_py.checkpoint.values import decay
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
    names = {**LLAMA, "model.output_attn_res": "output_res_score"}
    layers = {**LATENT, **DELTA_ATTENTION, **SPARSE, **ROUTED, **RESIDUALS}
    skipped = ("vision_tower.", "mm_projector.")
    parts = ("w1", "w2", "w3")

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        if (self.config.get("quantization_config") or {}).get("format") != "mxfp4-pack-quantized":
            yield from super().take_blocks(stored)
            return
        yield from take_mxfp4(self, stored, PACKED)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if match := RESIDUAL.fullmatch(name):
            part = ("norm", "proj").index(match[2])
            if both := self.gatherer.add(match[1], part, array.reshape(-1), 2):
                yield self.rename(f"{match[1]}.weight"), multiply(stack(both))
        elif name.endswith(".self_attn.g_proj.weight"):
            kind = "attn_gate" if self.is_full(layer or 0) else "ssm_g"
            yield f"blk.{layer}.{kind}.weight", array
        else:
            yield from super().tensors(name, array, layer)

    def decays(self, array: LazyArray) -> LazyArray:
        return array.rows(0, self.integer("num_attention_heads")).map(decay)

    def keys(self) -> None:
        self.config["num_key_value_heads"] = 1
        super().keys()
        self.copy(VOCAB_SIZE)
        self.delta_keys()
        self.copy(QUERY_RANK, KEY_RANK, ROTARY_SIZE)
        self.latent_keys()
        norm = ("expert_weights_norm", "bool!", ("moe_renormalize",))
        self.copy(EXPERT_SIZE, SHARED_COUNT, DENSE_LAYERS, EXPERT_SCALE, norm)
        self.set_gating("sigmoid")
        self.copy(
            ("expert_latent_length", "u32", ("routed_expert_hidden_size",)),
            ("activation.situ_beta", "f32!", ("activation_situ_beta",)),
            ("activation.situ_linear_beta", "f32!", ("activation_situ_linear_beta",)),
            ("attn_res.block_size", "u32!", ("attn_res_block_size",)),
        )

    def vocabulary(self, v: Vocabulary) -> None:
        write_vocabulary(v)
        if (eos := self.find("eos_token_id")) is not None:
            self.out.u32("tokenizer.ggml.eos_token_id", eos)


def multiply(both: LazyArray) -> LazyArray:
    """Return the product of a norm's weights and a projection, which are stored apart."""

    def make() -> Array:
        norm, projection = both.read().astype(np.float32)
        product: Array = norm * projection
        return product

    return LazyArray(both.shape[1:], np.float32, make)

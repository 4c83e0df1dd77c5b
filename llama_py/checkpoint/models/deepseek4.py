"""Checkpoints of DeepSeek-V4, with experts in MXFP4 (conversion/deepseek.py)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ggml_py.types import BF16, BY_NAME, F32, GGMLType
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.dequantize import FP8_BLOCK, WeightRestorer
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.dflash import DraftConverter
from llama_py.checkpoint.names import name_layers, pairs
from llama_py.checkpoint.nvfp4 import take_mxfp4
from llama_py.checkpoint.shared_keys import (
    EXPERT_NORM,
    EXPERT_SCALE,
    EXPERT_SIZE,
    HYPER_CONNECTION,
    INDEXER_KEYS,
    ROTARY_SIZE,
    SHARED_COUNT,
    WINDOW,
)
from llama_py.checkpoint.vocabulary import Vocabulary

I32 = BY_NAME["i32"]
PACKED = re.compile(r"layers\.(\d+)\.ffn\.experts\.(\d+)\.(w\d)\.weight")
FP8 = ("F8_E4M3", "F8_E5M2")
KINDS = ("fn", "base", "scale")
COMPRESSOR = {"wkv": "kv", "wgate": "gate", "ape": "ape", "norm": "norm"}
LAYER = {
    **{f"hc_{part}_{kind}": f"hc_{part}_{kind}" for part in ("attn", "ffn") for kind in KINDS},
    **pairs("""
        attn_norm=attn_norm ffn_norm=ffn_norm attn.attn_sink=attn_sinks attn.wq_a=attn_q_a
        attn.wq_b=attn_q_b attn.q_norm=attn_q_a_norm attn.wkv=attn_kv attn.kv_norm=attn_kv_a_norm
        attn.wo_a=attn_output_a attn.wo_b=attn_output_b
    """),
    **{f"attn.compressor.{k}": f"attn_compressor_{t}" for k, t in COMPRESSOR.items()},
    "attn.indexer.wq_b": "indexer.attn_q_b",
    "attn.indexer.weights_proj": "indexer.proj",
    **{f"attn.indexer.compressor.{k}": f"indexer_compressor_{t}" for k, t in COMPRESSOR.items()},
    **pairs("""
        ffn.gate=ffn_gate_inp ffn.experts.w1=ffn_gate_exps ffn.experts.w2=ffn_down_exps
        ffn.experts.w3=ffn_up_exps ffn.shared_experts.w1=ffn_gate_shexp
        ffn.shared_experts.w2=ffn_down_shexp ffn.shared_experts.w3=ffn_up_shexp
    """),
    **{f"nextn.{part}": f"nextn.{part}" for part in ("enorm", "hnorm", "shared_head_norm")},
}
DRAFT = re.compile(r"mtp\.(\d+)\.(.*)")
NEXTN = re.compile(r"([eh]_proj|[eh]norm)\.")
SHARED = ("embed.", "norm.", "head.")  # tensors that a file of drafting layers needs


class DeepseekV4Converter(Converter):
    """A model without its layers that draft tokens; --mtp converts only them."""

    arch = "deepseek4"
    classes = ("DeepseekV4ForCausalLM",)
    names = {
        "embed": "token_embd",
        "norm": "output_norm",
        "head": "output",
        **{f"hc_head_{kind}": f"output_hc_{kind}" for kind in KINDS},
        **name_layers("layers.{}", LAYER),
    }
    skipped: ClassVar[tuple[str, ...]] = ("aligner.", "image_")
    has_nextn = True

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_trunk = self.n_layer
        if options.draft == "mtp":
            self.n_layer += self.find("num_nextn_predict_layers") or 0

    def select(self, name: str) -> str | None:
        match = DRAFT.fullmatch(name)
        if (match is None) == bool(self.options.draft):
            return super().select(name) if name.startswith(SHARED) else None
        return super().select(name if match is None else self.place(int(match[1]), match[2]))

    def place(self, number: int, module: str) -> str:
        """Return the name of a module of a layer that drafts tokens."""
        if module.startswith("hc_head_"):
            return module
        if NEXTN.match(module):
            module = f"nextn.{module}"
        elif module.startswith("norm."):
            module = f"nextn.shared_head_{module}"
        return f"layers.{self.n_trunk + number}.{module}"

    def _rope(self) -> dict[str, Any]:
        rope, scaling = super()._rope(), self.config.get("rope_scaling")
        if rope.get("rope_type") is None and isinstance(scaling, dict):
            rope |= {"rope_type": scaling.get("type"), **scaling}
        return rope

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        for layer in range(0 if self.options.draft else self.integer("num_hash_layers")):
            table = stored.pop(f"layers.{layer}.ffn.gate.tid2eid", None)
            if table is None:
                raise self.refuse((f"layers.{layer}.ffn.gate.tid2eid",))
            yield f"blk.{layer}.ffn_gate_tid2eid.weight", pack_integers(table)
        fp8 = [n for n in stored if stored[n].stored in FP8 and n.endswith(".weight")]
        q = WeightRestorer(self.folder.path, {}, stored)
        for name in fp8:
            if f"{(base := name.removesuffix('.weight'))}.scale" in stored:
                q.scale(name, f"{base}.scale", [FP8_BLOCK, FP8_BLOCK])
        self.config.pop("quantization_config", None)
        renamed = {n.replace(".scale", ".weight_scale") if ".experts." in n else n: t
                   for n, t in stored.items()}  # fmt: skip
        stored.clear()
        stored |= renamed
        yield from take_mxfp4(self, stored, PACKED)
        for layer in range(self.n_trunk, self.n_layer):
            names = [f"layers.{layer}.nextn.{part}_proj.weight" for part in "eh"]
            if any(name in stored for name in names):
                parts = [q.take(name) for name in names]
                yield f"blk.{layer}.nextn.eh_proj.weight", concat(parts, 1)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith((".ffn.gate.bias", ".ffn.gate.bias_vl")):
            vision = "_vl" if name.endswith("_vl") else ""
            if vision or (layer or 0) >= self.integer("num_hash_layers"):
                yield f"blk.{layer}.exp_probs_b{vision}.bias", array
            return
        for new_name, new in super().tensors(name, array, layer):
            yield new_name if new_name.endswith(".weight") else f"{new_name}.weight", new

    def forced_type(self, name: str, array: LazyArray) -> GGMLType | None:
        if array.stored in FP8 or name.endswith(".nextn.eh_proj.weight"):
            return BY_NAME["q8_0"]
        return {"F32": F32, "BF16": BF16}.get(array.stored)

    def keys(self) -> None:
        super().keys()
        out = self.out
        rank = ("attention.q_lora_rank", "u32!", ("q_lora_rank",))
        self.copy(ROTARY_SIZE, rank, WINDOW, EXPERT_SIZE, SHARED_COUNT, EXPERT_SCALE, EXPERT_NORM)
        if (limit := self.find("swiglu_limit")) is None:
            raise self.refuse(("swiglu_limit",))
        out.array("swiglu_clamp_exp", [limit] * self.n_layer)
        out.array("swiglu_clamp_shexp", [limit] * self.n_layer)
        self.copy(
            *INDEXER_KEYS,
            ("attention.output_group_count", "u32!", ("o_groups",)),
            ("attention.output_lora_rank", "u32!", ("o_lora_rank",)),
        )
        out.array("attention.compress_ratios", self.find("compress_ratios"))
        self.copy(
            ("attention.compress_rope_freq_base", "f32!", ("compress_rope_theta",)),
            *HYPER_CONNECTION,
            ("hash_layer_count", "u32!", ("num_hash_layers",)),
        )
        if self.arch == "deepseek4":
            out.u32("embedding_length_out", self.integer("hidden_size") * self.integer("hc_mult"))
        if self.n_layer > self.n_trunk:
            out.u32("nextn_predict_layers", self.n_layer - self.n_trunk)


class DeepseekV4DSparkConverter(DraftConverter, DeepseekV4Converter):
    """The layers that draft tokens, as a DSpark model: --dspark."""

    arch = "dflash"
    classes = ("DeepseekV4DSparkModel",)
    names = {
        **DeepseekV4Converter.names,
        "main_proj": "fc",
        "main_norm": "enc.output_norm",
        "markov_head.markov_w1": "markov_w1",
        "markov_head.markov_w2": "markov_w2",
        "confidence_head.proj": "conf_proj",
    }
    needed = ("dspark_block_size", "dspark_target_layer_ids", "dspark_noise_token_id")

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, replace(options, draft="dspark"))
        found = (DRAFT.fullmatch(name) for name in folder.tensors)
        self.n_layer = max((int(match[1]) + 1 for match in found if match), default=0)
        self.config |= {"compress_ratios": [0] * self.n_layer, "num_hash_layers": 0}
        self.n_trunk = self.n_layer

    def select(self, name: str) -> str | None:
        return super().select(name) if DRAFT.fullmatch(name) else None

    def place(self, number: int, module: str) -> str:
        is_root = module.startswith(("hc_head_", "norm.", "main_", "markov_", "confidence_"))
        return module if is_root else f"layers.{number}.{module}"

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if not name.endswith(".bias_vl"):
            yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        super().keys()
        self.out.u32("block_size", self.integer("dspark_block_size"))
        layers = [i + 1 for i in self.find("dspark_target_layer_ids")]
        self.out.array("target_layers", layers)

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        self.out.u32("tokenizer.ggml.mask_token_id", self.integer("dspark_noise_token_id"))


def pack_integers(table: LazyArray) -> LazyArray:
    """Return a tensor of integers as I32."""

    def make() -> Array:
        return np.ascontiguousarray(table.bits().astype(np.int32)).view(np.uint8)

    shape = (*table.shape[:-1], 4 * table.shape[-1])
    return LazyArray(shape, np.uint8, make, "I32", packed=I32)

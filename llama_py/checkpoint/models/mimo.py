"""Checkpoints of MiMo-V2 (conversion/mimo.py)."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.dequantize import FP8_BLOCK
from llama_py.checkpoint.experts import ExpertsConverter, NextnConverter, per_layer
from llama_py.checkpoint.names import NEXTN, ROUTED_EXPERTS
from llama_py.checkpoint.nvfp4 import take_mxfp4
from llama_py.checkpoint.shared_keys import EXPERT_COUNT, EXPERT_SIZE, WINDOW

N_DRAFTS = 3  # layers that draft tokens; config.json lacks their number
DRAFT = re.compile(r"model\.mtp\.layers\.(\d+)\.(.*)")
QKV = re.compile(r"model\.layers\.(\d+)\.self_attn\.qkv_proj\.weight")
PACKED = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight")
DEVICES = (8, 4)  # numbers of parts into which rows of qkv_proj may be divided


class MimoV2Converter(ExpertsConverter, NextnConverter):
    arch = "mimo2"
    classes = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
    layers = {
        **ROUTED_EXPERTS,
        **NEXTN,
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.attention_sink_bias": "attn_sinks",
        "final_layernorm": "layer_output_norm",
    }
    suffixes = {"attention_sink_bias": ".weight"}
    parts = ("gate_proj", "up_proj", "down_proj")

    def n_drafts(self) -> int:
        return N_DRAFTS

    def place(self, name: str) -> str:
        match = DRAFT.fullmatch(name)
        return f"model.layers.{self.n_trunk + int(match[1])}.{match[2]}" if match else name

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        quant = self.config.get("quantization_config") or {}
        if quant.get("store_dtype") != "mxfp4":
            yield from super().take_blocks(stored)
        elif quant.get("mxfp4_block_size", 32) != 32:
            raise self.refuse(("mxfp4_block_size",), "32")
        else:
            yield from take_mxfp4(self, stored, PACKED)
        if quant.get("quant_method") == "fp8":
            for name in [*stored]:
                if (match := QKV.fullmatch(name)) and f"{name}_scale_inv" in stored:
                    scales = stored.pop(f"{name}_scale_inv")
                    stored[name] = self._join_devices(int(match[1]), stored[name], scales)

    def _join_devices(self, layer: int, w: LazyArray, scales: LazyArray) -> LazyArray:
        """Return the rows of queries, then of keys, then of values. They are stored by device, each
        with its own blocks of scales."""
        n_key = self._key_heads()[layer] * self.integer("head_dim")
        n_value = self._key_heads()[layer] * self.integer("v_head_dim")
        sizes = (self.integer("num_attention_heads") * self.integer("head_dim"), n_key, n_value)
        n = sum(sizes)
        each = next(
            (d for d in DEVICES if n % d == 0 and scales.shape[0] == d * -(-(n // d) // FP8_BLOCK)),
            None,
        )
        if w.shape[0] != n or each is None:
            raise ModelError(
                f"{self.folder.path}: qkv_proj of layer {layer} must have {n} rows, and blocks of "
                f"scales of {DEVICES} devices, got {w.shape[0]} rows and {scales.shape[0]} blocks"
            )
        n_rows = n // each

        def make() -> Array:
            row = np.arange(n)
            blocks = row // n_rows * (scales.shape[0] // each) + row % n_rows // FP8_BLOCK
            spread = np.repeat(scales.read().astype(np.float32)[blocks], FP8_BLOCK, 1)
            values = w.read().astype(np.float32) * spread[:, : w.shape[1]]
            devices = values.reshape(each, n_rows, -1)
            starts = np.cumsum([0, *(size // each for size in sizes)])
            parts = [devices[:, a:b].reshape(-1, w.shape[1]) for a, b in pairwise(starts)]
            return np.concatenate(parts)

        return LazyArray(w.shape, np.float32, make, w.stored)

    def _windows(self) -> list[int]:
        """Return 1 for each layer that attends to a window of tokens."""
        listed = per_layer(self, "hybrid_layer_pattern", self.n_trunk)
        return [*listed, *[1] * (self.n_layer - self.n_trunk)]

    def _key_heads(self) -> list[int]:
        heads = self.integer("num_key_value_heads"), self.integer("swa_num_key_value_heads")
        return [heads[window == 1] for window in self._windows()]

    def keys(self) -> None:
        super().keys()
        for name in ("head_dim", "num_attention_heads", "v_head_dim"):
            if self.find(f"swa_{name}") != self.find(name):
                raise self.refuse((f"swa_{name}",), f"equal to {name}")
        if self.find("topk_method") != "noaux_tc":
            raise self.refuse(("topk_method",), "noaux_tc")
        out = self.out
        out.array("attention.head_count_kv", self._key_heads())
        self.copy(WINDOW)
        out.array("attention.sliding_window_pattern", self._windows())
        values = ("attention.value_length", "u32!", ("v_head_dim",))
        self.copy(values, EXPERT_COUNT, EXPERT_SIZE)
        if (part := self.rope.get("partial_rotary_factor")) is None:
            raise self.refuse(("partial_rotary_factor",))
        out.u32("rope.dimension_count", int(self.integer("head_dim") * part))
        epsilon = self.config.get("layernorm_epsilon", 1e-5)
        out.f32("attention.layer_norm_rms_epsilon", epsilon)
        self.copy(("attention.value_scale", "f32", ("attention_value_scale",)))
        self.draft_key()

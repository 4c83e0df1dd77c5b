"""Checkpoints of gpt-oss, with experts in MXFP4 (conversion/gpt_oss.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import EXPERTS
from llama_py.checkpoint.nvfp4 import pack_mxfp4
from llama_py.checkpoint.shared_keys import WINDOW

PARTS = {0: "gate_proj", 1: "up_proj"}  # alternate rows of gate_up_proj


class GptOssConverter(Converter):
    arch = "gpt-oss"
    classes = ("GptOssForCausalLM",)
    layers = {
        **EXPERTS,
        "mlp.router": "ffn_gate_inp",
        "self_attn.sinks": "attn_sinks",
        "post_attention_layernorm": "post_attention_norm",
    }
    suffixes = {"sinks": ".weight"}
    own_keys = (WINDOW, ("expert_feed_forward_length", "u32!", ("intermediate_size",)))

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        if (self.config.get("quantization_config") or {}).get("quant_method") != "mxfp4":
            yield from super().take_blocks(stored)
            return
        self.config.pop("quantization_config")
        self.blocks = "MXFP4_MOE"
        for name in [n for n in stored if n.endswith("_scales")]:
            base = name.removesuffix("_scales")
            if (packed := stored.pop(f"{base}_blocks", None)) is None:
                raise self.refuse((f"{base}_blocks",))
            yield from self._parts(base, "weight", pack_mxfp4(packed, stored.pop(name)))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        base, is_bias = name.removesuffix("_bias"), name.endswith("_bias")
        if not base.endswith((".down_proj", ".gate_up_proj")):
            yield from super().tensors(name, array, layer)
        elif is_bias:
            yield from self._parts(base, "bias", array)
        else:
            yield from self._parts(base, "weight", array.swap(-1, -2))

    def _parts(self, base: str, kind: str, array: LazyArray) -> NamedArrays:
        """Yield a matrix of experts, or the two of gate_up_proj, [n_experts, n_out, ...]."""
        if base.endswith("down_proj"):
            yield self.rename(f"{base}.{kind}"), array
            return
        n_experts, n, *rest = array.shape
        pairs = array.reshape(n_experts, n // 2, 2, *rest)
        for i, part in PARTS.items():
            made = pairs.rows(i, i + 1, 2).reshape(n_experts, n // 2, *rest)
            yield self.rename(f"{base.removesuffix('gate_up_proj')}{part}.{kind}"), made

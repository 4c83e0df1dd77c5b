"""Checkpoints of Qwen3-Next: delta nets, experts, a layer that drafts
(llama.cpp's Qwen3NextModel)."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS, NEXTN
from llama_py.checkpoint.values import plus_one

DELTA_NET = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_proj": "ssm_dt",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
# Modules of `mtp.`, as those of the layer after the last
DRAFT = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}
ROPE_PART = 0.25  # of a head's values, without partial_rotary_factor


class Qwen3NextConverter(Qwen2MoeConverter):
    arch = "qwen3next"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3NextForCausalLM",)
    layers = {**HEAD_NORMS, **DELTA_NET, **NEXTN, "post_attention_layernorm": "post_attention_norm"}
    has_nextn = True

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_trunk = self.n_layer
        if options.nextn:
            self.n_layer += self.find("mtp_num_hidden_layers") or self._n_stored_drafts()

    def _n_stored_drafts(self) -> int:
        """Return the number of drafting layers; config.json of Qwen3-Next lacks it."""
        parts = (name.removeprefix("model.").split(".") for name in self.folder.tensors)
        found = [int(p[2]) + 1 for p in parts if p[:2] == ["mtp", "layers"] and p[2].isdecimal()]
        return max(found, default=0)

    def select(self, name: str) -> str | None:
        selected = super().select(name)
        draft = (selected or "").removeprefix("model.")
        if not draft.startswith("mtp."):
            return selected
        if not self.options.nextn:
            return None
        _, part, *rest = draft.split(".")
        if part == "layers":
            number, *module = rest
            return f"model.layers.{self.n_trunk + int(number)}.{'.'.join(module)}"
        return f"model.layers.{self.n_trunk}.{DRAFT.get(part, part)}.{'.'.join(rest)}"

    def keys(self) -> None:
        super().keys()
        out = self.out
        if self.n_layer > self.n_trunk:
            out.u32("nextn_predict_layers", self.n_layer - self.n_trunk)
        out.u32("ssm.conv_kernel", self.integer("linear_conv_kernel_dim"))
        out.u32("ssm.state_size", self.key_dim)
        out.u32("ssm.group_count", self.n_key_heads)
        out.u32("ssm.time_step_rank", self.n_value_heads)
        out.u32("ssm.inner_size", self.value_dim * self.n_value_heads)
        if (types := self.find("layer_types")) is not None:
            if not isinstance(types, list) or len(types) != self.n_trunk:
                raise ModelError(f"layer_types must have {self.n_trunk} entries, one per layer")
            recurrent = [t == "linear_attention" for t in types]
            recurrent += [False] * (self.n_layer - self.n_trunk)
            out.array("attention.recurrent_layers", recurrent)
        out.u32("full_attention_interval", self.config.get("full_attention_interval", 4))
        part = self.rope.get("partial_rotary_factor", ROPE_PART)
        out.u32("rope.dimension_count", int(self.head_dim * part))

    @cached_property
    def n_key_heads(self) -> int:
        return self.integer("linear_num_key_heads")

    @cached_property
    def n_value_heads(self) -> int:
        return self.integer("linear_num_value_heads")

    @cached_property
    def key_dim(self) -> int:
        return self.integer("linear_key_head_dim")

    @cached_property
    def value_dim(self) -> int:
        return self.integer("linear_value_head_dim")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            array = array.map(plus_one)
        if "in_proj_qkvz.weight" in name:
            qkv, z = self._separate(array)
            yield f"blk.{layer}.attn_qkv.weight", qkv
            yield f"blk.{layer}.attn_gate.weight", z
        else:
            yield from super().tensors(name, array, layer)

    def _separate(self, array: LazyArray) -> tuple[LazyArray, LazyArray]:
        """Return the rows of queries, keys and values, and of gates; they are stored by key head:
        its query, its key, and the values and gates of its value heads."""
        each = self.n_value_heads // self.n_key_heads * self.value_dim
        sizes = [self.key_dim, self.key_dim, each, each]
        heads = array.reshape(self.n_key_heads, sum(sizes), array.shape[1])
        q, k, v, z = (part.reshape(-1, array.shape[1]) for part in heads.split(sizes, 1))
        return concat([q, k, v]), z

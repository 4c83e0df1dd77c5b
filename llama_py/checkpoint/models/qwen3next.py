"""Checkpoints of Qwen3-Next: delta nets, experts, a layer that drafts
(llama.cpp's Qwen3NextModel)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.experts import NextnConverter
from llama_py.checkpoint.merge import PartGatherer
from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS, NEXTN, find_layer, pairs
from llama_py.checkpoint.shared_keys import Keys
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.values import minus_one, plus_one

DELTA_NET = pairs("""
    linear_attn.in_proj_qkv=attn_qkv linear_attn.in_proj_z=attn_gate linear_attn.in_proj_a=ssm_alpha
    linear_attn.in_proj_b=ssm_beta linear_attn.in_proj_ba=ssm_ba linear_attn.conv1d=ssm_conv1d
    linear_attn.dt_proj=ssm_dt linear_attn.A_log=ssm_a linear_attn.norm=ssm_norm
    linear_attn.out_proj=ssm_out
""")
# Modules of `mtp.`, as those of the layer after the last
DRAFT = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}
DELTA_KEYS: Keys = (
    ("ssm.conv_kernel", "u32!", ("linear_conv_kernel_dim",)),
    ("ssm.state_size", "u32!", ("linear_key_head_dim",)),
    ("ssm.group_count", "u32!", ("linear_num_key_heads",)),
    ("ssm.time_step_rank", "u32!", ("linear_num_value_heads",)),
)
ROPE_PART = 0.25  # of a head's values, without partial_rotary_factor


class Qwen3NextConverter(NextnConverter, Qwen2MoeConverter):
    arch = "qwen3next"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3NextForCausalLM",)
    layers = {**HEAD_NORMS, **DELTA_NET, **NEXTN, "post_attention_layernorm": "post_attention_norm"}
    exports: ClassVar[Mapping[str, str]] = {"Qwen3NextForCausalLM": "qwen3_next"}
    constants = {"norm_topk_prob": True}
    joins_gates = True  # the gates of delta nets are in the matrix of queries, keys and values

    def n_drafts(self) -> int:
        if count := self.find("mtp_num_hidden_layers"):
            return int(count)
        parts = (name.removeprefix("model.").split(".") for name in self.folder.tensors)
        found = [int(p[2]) + 1 for p in parts if p[:2] == ["mtp", "layers"] and p[2].isdecimal()]
        return max(found, default=0)

    def place(self, name: str) -> str:
        draft = name.removeprefix("model.")
        if not draft.startswith("mtp."):
            return name
        _, part, *rest = draft.split(".")
        if part == "layers":
            number, *module = rest
            return f"model.layers.{self.n_trunk + int(number)}.{'.'.join(module)}"
        return f"model.layers.{self.n_trunk}.{DRAFT.get(part, part)}.{'.'.join(rest)}"

    def keys(self) -> None:
        super().keys()
        out = self.out
        self.draft_key()
        self.copy(*DELTA_KEYS)
        out.u32("ssm.inner_size", self.value_dim * self.n_value_heads)
        if (types := self.find("layer_types")) is not None:
            if not isinstance(types, list) or len(types) != self.n_trunk:
                raise ModelError(
                    f"layer_types must have {self.n_trunk} entries, one per layer, got "
                    f"{str(types)[:50]}"
                )
            recurrent = [t == "linear_attention" for t in types]
            recurrent += [False] * (self.n_layer - self.n_trunk)
            out.array("attention.recurrent_layers", recurrent)
        out.u32("full_attention_interval", self.config.get("full_attention_interval", 4))
        part = self.rope.get("partial_rotary_factor", ROPE_PART)
        out.u32("rope.dimension_count", int(self.head_dim * part))

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        found = {**super().restore_config(model), **model.restore(DELTA_KEYS, cls.prefers)}
        found["linear_value_head_dim"] = model.get("ssm.inner_size", 0) // max(
            found.get("linear_num_value_heads", 0), 1
        )
        found["full_attention_interval"] = each = model.get("full_attention_interval", 4)
        recurrent = model.get("attention.recurrent_layers")
        if recurrent is None:
            recurrent = [(i + 1) % each != 0 for i in range(model.n_layer)]
        kinds = ("full_attention", "linear_attention")
        found["layer_types"] = [kinds[bool(one)] for one in recurrent[: model.n_layer]]
        part = model.get("rope.dimension_count", 0) / max(found.get("head_dim", 0), 1)
        found["rope_parameters"]["partial_rotary_factor"] = part
        if model.n_draft:
            found["mtp_num_hidden_layers"] = model.n_draft
        found["attention_bias"] = any(name.endswith("attn_q.bias") for name in model.file.tensors)
        return found

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

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if self.joins_gates and name.endswith((".attn_qkv.weight", ".attn_gate.weight")):
            parts = self.gates.add(str(layer), int("attn_gate" in name), array, 2)
            if parts is not None:
                yield f"model.layers.{layer}.linear_attn.in_proj_qkvz.weight", self._join(*parts)
            return
        for stored, one in super().restore(name, array, layer):
            if stored.endswith(".dt_proj.bias"):
                stored = stored.removesuffix(".dt_proj.bias") + ".dt_bias"
            elif stored.endswith("norm.weight") and not stored.endswith("linear_attn.norm.weight"):
                one = one.map(minus_one)
            yield stored, one

    @cached_property
    def gates(self) -> PartGatherer:
        return PartGatherer()

    def _join(self, qkv: LazyArray, z: LazyArray) -> LazyArray:
        """Return the rows by key head, the inverse of `_separate`."""
        n, n_in = self.n_key_heads, qkv.shape[1]
        sizes = [n * self.key_dim, n * self.key_dim, self.n_value_heads * self.value_dim]
        each = [part.reshape(n, -1, n_in) for part in (*qkv.split(sizes), z)]
        return concat(each, 1).reshape(-1, n_in)

    def unselect(self, name: str) -> str:
        layer, modules = find_layer(name), {module: part for part, module in DRAFT.items()}
        if layer is None or layer < self.n_trunk:
            return name
        module, _, suffix = name.removeprefix(f"model.layers.{layer}.").rpartition(".")
        if module in modules or module in NEXTN:
            return f"mtp.{modules.get(module, module)}.{suffix}"
        return f"mtp.layers.{layer - self.n_trunk}.{module}.{suffix}"

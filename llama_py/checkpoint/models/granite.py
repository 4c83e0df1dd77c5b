"""Checkpoints of Granite: dense, with experts, with windows, with Mamba 2, with adapters; and Bamba
(conversion/granite.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.experts import per_layer
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.models.mamba import CONTEXT, Mamba2Converter, write_padded
from llama_py.checkpoint.names import MAMBA
from llama_py.checkpoint.rotary import permute
from llama_py.checkpoint.vocabulary import Vocabulary

IMAGES = ("image_", "layerwise_projectors", "spatial_projectors")
SCALES = (
    ("attention.scale", "f32", ("attention_multiplier",)),
    ("embedding_scale", "f32", ("embedding_multiplier",)),
    ("residual_scale", "f32", ("residual_multiplier",)),
    ("logit_scale", "f32", ("logits_scaling",)),
)
EXPERTS = {
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
INPUTS = "block_sparse_moe.input_linear.weight"
SHARED, SHARED_OUTPUT = "shared_mlp.input_linear.weight", "shared_mlp.output_linear.weight"


class GraniteConverter(LlamaConverter):
    arch = "granite"
    classes: ClassVar[tuple[str, ...]] = ("GraniteForCausalLM",)

    def select(self, name: str) -> str | None:
        if name.startswith("encoder.") or any(part in name for part in IMAGES):
            return None
        return super().select(name)

    def keys(self) -> None:
        self.config.pop("head_dim", None)
        super().keys()
        self.copy(*(row for row in SCALES if self.find(*row[2])))
        if self.find("spatial_target_layers") or self.find("deepstack_layer_map"):
            self.out.array("deepstack_mapping", self._deepstack())

    def _deepstack(self) -> list[int]:
        """Return for each layer the projection of image features that it adds, or -1; the first
        one gives the embeddings."""
        whole = self.folder.whole_config
        parts = [whole.get(part) or {} for part in ("text_config", "vision_config")]
        n_text, n_image = (part.get("num_hidden_layers") or 0 for part in parts)
        if not (n_text and n_image):
            raise self.refuse(("num_hidden_layers of text_config and vision_config",))
        pairs = [
            (v % n_image, t % n_text) for v, t in sorted(whole.get("deepstack_layer_map") or [])
        ]
        vision = whole.get("spatial_vision_layer", -1) % n_image
        found: list[tuple[Any, ...]] = [(v, t, "layerwise", i) for i, (v, t) in enumerate(pairs)]
        spatial = whole.get("spatial_target_layers") or []
        found += [(vision, t, "spatial", i) for i, t in enumerate(spatial)]
        layers = [-1] * self.n_layer
        for i, (_, text, *_) in enumerate(sorted(found, key=lambda entry: entry[1])):
            if i:
                layers[text] = i
        return layers


class GraniteSwaConverter(GraniteConverter):
    arch = "granite_swa"
    classes: ClassVar[tuple[str, ...]] = ("GraniteSWAForCausalLM",)
    layers = {"self_attn.sinks": "attn_sinks"}
    suffixes: ClassVar[Mapping[str, str]] = {"sinks": ".weight"}

    def keys(self) -> None:
        super().keys()
        self.out.u32("attention.sliding_window", self.config.get("sliding_window", 128))
        types = self.find("layer_types") or [
            "sliding_attention" if i % 4 else "" for i in range(self.n_layer)
        ]
        windows = [kind == "sliding_attention" for kind in types]
        self.out.array("attention.sliding_window_pattern", windows)
        if rotated := self.find("no_rope_layers"):  # 1: with RoPE
            self.out.array("attention.rope_pattern", [bool(x) for x in rotated])


class GraniteMoeSwaConverter(GraniteSwaConverter):
    """Gate and up matrices remain one tensor."""

    classes: ClassVar[tuple[str, ...]] = ("GraniteMoeSWAForCausalLM",)
    layers = {
        **EXPERTS,
        "block_sparse_moe.input_linear": "ffn_gate_up_exps",
        "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps",
        "block_sparse_moe.experts.down_proj": "ffn_down_exps",
        "shared_mlp.input_linear": "ffn_up_shexp",
    }
    suffixes = dict.fromkeys(("sinks", ".gate_up_proj", ".experts.down_proj"), ".weight")

    def keys(self) -> None:
        super().keys()
        if length := self.find("shared_intermediate_size"):
            self.out.u32("expert_shared_feed_forward_length", length)


class GraniteMoeConverter(GraniteConverter):
    arch = "granitemoe"
    classes: ClassVar[tuple[str, ...]] = ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM")
    layers = EXPERTS

    def keys(self) -> None:
        super().keys()
        if length := self.find("shared_intermediate_size"):
            self.out.u32("expert_shared_feed_forward_length", length)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        shared = "_shexp" if self.find("num_local_experts") else ""
        if name.endswith((INPUTS, SHARED)):
            kind = "_exps" if name.endswith(INPUTS) else shared
            gate, up = array.split([array.shape[-2] // 2] * 2, array.ndim - 2)
            yield f"blk.{layer}.ffn_gate{kind}.weight", gate
            yield f"blk.{layer}.ffn_up{kind}.weight", up
        elif name.endswith(SHARED_OUTPUT) and not shared:
            yield f"blk.{layer}.ffn_down.weight", array
        else:
            yield from super().tensors(name, array, layer)


class GraniteHybridConverter(Mamba2Converter, GraniteMoeConverter):
    """Layers of Mamba 2 or of attention; without the former a model is a plain Granite."""

    arch = "granitehybrid"
    classes: ClassVar[tuple[str, ...]] = ("GraniteMoeHybridForCausalLM", "BambaForCausalLM")
    names = {**GraniteMoeConverter.names, "model.final_layernorm": "output_norm"}
    layers = {
        **MAMBA,
        **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
        "pre_ff_layernorm": "ffn_norm",
    }
    attention_types: tuple[str, ...] = ("attention", "full_attention")
    plain_archs: tuple[str, str] = ("granite", "granitemoe")

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.attention_layers = self.find_attention()
        self.state_layers = [i for i in range(self.n_layer) if i not in self.attention_layers]
        if not self.state_layers and all(self.plain_archs):
            has_experts = self.find("num_experts_per_tok", "num_experts_per_token")
            self.arch = self.out.arch = self.plain_archs[bool(has_experts)]
            self.out.text("general.architecture", self.arch)

    def find_attention(self) -> list[int]:
        """Return the layers of attention."""
        if self.find("layer_types"):
            types = per_layer(self, "layer_types")
            return [i for i, kind in enumerate(types) if kind in self.attention_types]
        if layers := self.find("attn_layer_indices"):
            return [*layers]
        period = self.integer("attn_layer_period")
        offset = self.integer("attn_layer_offset")
        return [i for i in range(self.n_layer) if i % max(period, 1) == offset]

    def state_names(self, *names: str) -> tuple[str, ...]:
        return (*names, *(f"mamba_{name}" for name in names))

    @property
    def n_group(self) -> int:
        return self.integer(*self.state_names("n_groups", "num_groups"))

    @property
    def n_inner(self) -> int:
        size = self.integer("mamba_head_dim", "hidden_size", "d_model")
        return self.integer(*self.state_names("expand", "num_heads")) * size

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        in_attention = layer in self.attention_layers
        if not in_attention and layer is not None and ".mamba." in name:
            yield from self.state_space(name, array)
        else:
            yield from GraniteMoeConverter.tensors(self, name, array, layer)

    def keys(self) -> None:
        GraniteMoeConverter.keys(self)
        out = self.out

        def find(*names: str) -> int:
            return self.integer(*self.state_names(*names))

        out.u32("ssm.conv_kernel", find("conv_kernel", "d_conv"))
        out.u32("ssm.state_size", find("state_size", "d_state", "state_dim", "ssm_state_size"))
        out.u32("ssm.group_count", self.n_group)
        out.u32("ssm.inner_size", self.n_inner)
        out.u32("ssm.time_step_rank", find("n_heads", "num_heads"))
        heads = find("num_key_value_heads", "n_head_kv")
        if n_rot := self.find("attn_rotary_emb"):
            out.u32("rope.dimension_count", n_rot)
        each = [heads if i in self.attention_layers else 0 for i in range(self.n_layer)]
        out.array("attention.head_count_kv", each)
        rotates = self.rotates
        out.boolean("rope.scaling.finetuned", rotates)
        if not rotates:
            out.u32("context_length", CONTEXT)
        if self.find("hidden_act") not in (None, "silu"):
            raise self.refuse(("hidden_act",), "silu")

    @property
    def rotates(self) -> bool:
        """True if the model has RoPE."""
        names = self.folder.whole_config.get("architectures") or []
        return "BambaForCausalLM" in names or not self.state_layers

    def vocabulary(self, v: Vocabulary) -> None:
        self.config["pad_vocab_size_multiple"] = 8 if self.state_layers else 1
        write_padded(self, v, 8, prefers_json=False)


class GraniteSwitchConverter(GraniteMoeConverter):
    """A dense Granite with a stack of LoRA adapters for each matrix; the first one is zero."""

    arch = "graniteswitch"
    classes: ClassVar[tuple[str, ...]] = ("GraniteSwitchForCausalLM",)
    names = LlamaConverter.names
    layers = {
        "self_attn.o_proj.base_layer": "attn_output",
        "shared_mlp.output_linear.base_layer": "ffn_down",
    }
    skipped = ("lm_head.weight", "model.switch.", "switch.")

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_layer -= 1  # the choice of an adapter counts as a layer

    def keys(self) -> None:
        super().keys()
        if not self.find("num_local_experts"):
            self.out.u32("expert_used_count", 0)
        out = self.out
        out.u32("adapters.count", self.integer("num_adapters"))
        out.u32("adapters.lora_rank", self.integer("max_lora_rank"))
        out.array("adapters.token_ids_activate", self.find("adapter_token_ids"))
        out.array("adapters.token_ids_substitute", self.find("adapter_substitute_token_ids"))
        out.f32("adapters.router_gain", self.config.get("control_token_gain", 15.0))

    def select(self, name: str) -> str | None:
        last = name.rpartition(".")[2]
        is_table = last in ("adapter_token_ids", "control_to_substitute_lut")
        return None if is_table else super().select(name)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        base = name.removesuffix(".base_layer.weight")
        heads = (self.integer("num_attention_heads"), self.integer("num_key_value_heads"))
        if base.endswith("self_attn.qkv_proj"):
            yield f"blk.{layer}.attn_qkv.weight", self._permuted_qkv(array, *heads)
        elif base.endswith("shared_mlp.input_linear"):
            for new_name, part in split_pairs(array):
                yield f"blk.{layer}.ffn_{new_name}.weight", part
        elif "lora_" in name:
            yield self._adapter(name, array, layer, heads)
        else:
            yield from LlamaConverter.tensors(self, name, array, layer)

    def _permuted_qkv(self, array: LazyArray, n_head: int, n_head_kv: int) -> LazyArray:
        size = self.find("projection_head_dim", "head_dim")
        size = size or self.integer("hidden_size") // n_head
        q, k, v = array.split([n_head * size, n_head_kv * size, n_head_kv * size])
        return concat([permute(q, n_head), permute(k, n_head_kv), v])

    def _adapter(
        self, name: str, array: LazyArray, layer: int | None, heads: tuple[int, int]
    ) -> tuple[str, LazyArray]:
        """Return a matrix of all adapters, [n_adapters + 1, n_out, n_in]."""
        module, _, slot = name.partition(".lora_")
        which = "lora_a" if slot.startswith("A") else "lora_b"
        number = int(slot.rpartition(".")[2]) if slot[-1:].isdecimal() else 0
        tensors = {
            "qkv_proj": ("attn_q", "attn_k", "attn_v"),
            "o_proj": ("attn_output",),
            "input_linear": ("ffn_gate", "ffn_up"),
            "output_linear": ("ffn_down",),
        }[module.rpartition(".")[2]]
        each = array.reshape(array.shape[0], *array.shape[-2:])
        if which == "lora_b" and module.endswith("qkv_proj") and number < 2:
            n, n_out, rank = each.shape
            n_head = heads[number]
            each = each.reshape(n, n_head, 2, n_out // n_head // 2, rank).swap(2, 3)
            each = each.reshape(n, n_out, rank)
        zero = each.rows(0, 1).map(clear)
        return f"blk.{layer}.{tensors[number]}.{which}", concat([zero, each])


def clear(x: Array) -> Array:
    return np.zeros_like(x)


def split_pairs(array: LazyArray) -> NamedArrays:
    """Yield the gate and up halves of a matrix."""
    gate, up = array.split([array.shape[0] // 2] * 2)
    yield "gate", gate
    yield "up", up

"""Checkpoints of HRM-Text (conversion/hrm_text.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.names import ATTENTION, FEED_FORWARD

FUSED = {"attn.gqkv_proj": ("attn_gate", "attn_q", "attn_k", "attn_v"),
         "mlp.gate_up_proj": ("ffn_gate", "ffn_up")}  # fmt: skip


class HrmTextConverter(Converter):
    """Two stacks of layers, which compute in cycles; a KV cache has all computed layers."""

    arch = "hrm_text"
    classes = ("HrmTextForCausalLM",)
    names = {
        "model.embed_tokens": "token_embd",
        "lm_head": "output",
        "model.z_L_init": "hrm.z_l_init",
    }
    layers = {**ATTENTION, **FEED_FORWARD, "self_attn.gate_proj": "attn_gate"}
    needed = ("embedding_scale",)

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_stack = self.find("num_layers_per_stack") or self.n_layer
        cycles = self.integer("H_cycles"), self.integer("L_cycles")
        self.n_layer = self.n_stack * cycles[0] * (cycles[1] + 1)

    def select(self, name: str) -> str | None:
        """Number the layers of the stack L first, then the layers of H."""
        name = name.replace("model.L_module.layers.", "model.layers.")
        before, high, after = name.partition("model.H_module.layers.")
        if high and (number := after.split(".", 1)[0]).isdecimal():
            name = f"{before}model.layers.{int(number) + self.n_stack}{after[len(number) :]}"
        return super().select(name)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        module = name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight")
        if parts := FUSED.get(module):
            n = array.shape[0] // len(parts)
            for part, new in zip(parts, array.split([n] * len(parts)), strict=True):
                yield f"blk.{layer}.{part}.weight", new
        else:
            yield from super().tensors(name.replace(".attn.", ".self_attn."), array, layer)

    def keys(self) -> None:
        super().keys()
        out = self.out
        out.u32("rope.dimension_count", self.head_dim)
        out.f32("embedding_scale", self.find("embedding_scale"))
        out.u32("hrm.layers_per_stack", self.n_stack)
        out.u32("hrm.h_cycles", self.integer("H_cycles"))
        out.u32("hrm.l_cycles", self.integer("L_cycles"))
        out.boolean("hrm.prefix_lm", self.config.get("prefix_lm", False))

"""Checkpoints of Llama 4 (conversion/llama.py: Llama4Model)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.merge import split_gate_up
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import LLAMA
from llama_py.checkpoint.vocabulary import Vocabulary

PARTS = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
FEED_FORWARD = {"feed_forward.router": "ffn_gate_inp"}
for part, tensor in PARTS.items():
    FEED_FORWARD[f"feed_forward.{part}"] = tensor
    FEED_FORWARD[f"feed_forward.experts.{part}"] = f"{tensor}_exps"
    FEED_FORWARD[f"feed_forward.shared_expert.{part}"] = f"{tensor}_shexp"


class Llama4Converter(LlamaConverter):
    arch = "llama4"
    classes = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
    names = LLAMA
    layers = FEED_FORWARD
    permutes = False
    needed = ("intermediate_size_mlp", "interleave_moe_layer_step")

    def keys(self) -> None:
        n_ff_expert = self.integer("intermediate_size")
        self.config["intermediate_size"] = self.integer("intermediate_size_mlp")
        super().keys()
        self.out.u32("interleave_moe_layer_step", self.integer("interleave_moe_layer_step"))
        self.out.u32("expert_feed_forward_length", n_ff_expert)
        types = self.find("layer_types")
        if types is not None and {*types} <= {"full_attention"}:
            self.out.u32("attention.sliding_window", 0)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        """Experts are stored as [n_expert, n_in, n_out]."""
        if "gate_up_proj" in name:
            for new_name, new in split_gate_up(name, array.swap(-1, -2)):
                yield from super().tensors(new_name, new, layer)
        elif name.endswith("down_proj"):
            yield from super().tensors(f"{name}.weight", array.swap(-1, -2), layer)
        else:
            yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()

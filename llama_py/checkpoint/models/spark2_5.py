"""Checkpoints of Spark 2.5 (conversion/spark2_5.py)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.shared_keys import VOCAB_SIZE, WINDOWS

FULL, SLIDING = "full_attention", "sliding_attention"
WANTED = (
    ("gate_attn_act_mode", "sigmoid"),
    ("headwise_attn_output_gate", True),
    ("hidden_act", "gelu"),
)


class Spark25Converter(Converter):
    arch = "spark2_5"
    classes = ("Spark2_5ForCausalLM",)
    layers = {"self_attn.q_k_v_proj": "attn_qkv", "self_attn.g_proj": "attn_gate"}
    needed = ("layer_types", "sliding_window", "head_dim")

    def keys(self) -> None:
        super().keys()
        types = self.find("layer_types")
        if len(types) != self.n_layer or not {*types} <= {FULL, SLIDING}:
            raise ModelError(
                f"layer_types must have {self.n_layer} entries, each {FULL} or {SLIDING}, got "
                f"{str(types)[:50]}"
            )
        for name, wanted in WANTED:
            if self.find(name) != wanted:
                raise self.refuse((name,), str(wanted))
        self.copy(VOCAB_SIZE, *WINDOWS)
        for key, kind in (("rope.dimension_count", FULL), ("rope.dimension_count_swa", SLIDING)):
            part = self.rope.get(kind, {}).get("partial_rotary_factor", 1.0)
            self.out.u32(key, int(self.head_dim * part))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        n_head = self.integer("num_attention_heads")
        if name.endswith(".self_attn.g_proj.weight") and array.shape[0] != n_head:
            raise ModelError(
                f"{name} must have {n_head} rows, one per head, got {list(array.shape)}"
            )
        yield from super().tensors(name, array, layer)

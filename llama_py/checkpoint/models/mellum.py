"""Checkpoints of Mellum, Maincoder and Maple: like Qwen3 (conversion/mellum.py, maincoder.py,
maple.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.models.qwen2moe import EXPERT_KEYS
from llama_py.checkpoint.models.qwen3 import Qwen3Converter
from llama_py.checkpoint.models.qwen3moe import Qwen3MoeConverter
from llama_py.checkpoint.shared_keys import VOCAB_SIZE, WINDOWS

SWIGLU_LIMIT = 7.0  # of Maple's experts


class MaincoderConverter(Converter):
    arch = "maincoder"
    classes = ("MaincoderForCausalLM",)
    names = Qwen3Converter.names
    own_keys = (("rope.dimension_count", "u32", ("head_dim",)),)


class MellumConverter(ExpertsConverter):
    arch = "mellum"
    classes = ("MellumForCausalLM",)
    names = Qwen3MoeConverter.names

    def keys(self) -> None:
        super().keys()
        self.copy(EXPERT_KEYS[0])
        if self.find("use_sliding_window") is not False and self.find("sliding_window") is not None:
            self.copy(*WINDOWS)


class MapleConverter(ExpertsConverter):
    arch = "maple"
    classes = ("MapleForCausalLM",)
    names = Qwen3MoeConverter.names
    needed = ("sliding_window", "layer_types", "moe_intermediate_size")

    def keys(self) -> None:
        for name, wanted, default in (
            ("hidden_act", "silu", None),
            ("num_shared_experts", 0, 0),
            ("norm_topk_prob", True, True),
            ("nope_on_global_attention", True, False),
        ):
            if self.config.get(name, default) != wanted:
                raise self.refuse((name,), str(wanted))
        super().keys()
        part = self.rope.get("partial_rotary_factor", 1.0)
        self.copy(VOCAB_SIZE)
        self.out.u32("rope.dimension_count", int(self.head_dim * part))
        self.copy(*WINDOWS, EXPERT_KEYS[0])
        self.out.array("swiglu_clamp_exp", [SWIGLU_LIMIT] * self.n_layer)

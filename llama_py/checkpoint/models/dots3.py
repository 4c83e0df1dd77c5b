"""Checkpoints of dots3-note: latent attention of two sizes (conversion/dots3.py)."""

from __future__ import annotations

import math

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.experts import per_layer
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.deepseek import SparseConverter
from llama_py.checkpoint.shared_keys import INDEXER_KEYS

DRAFT = "model.mtp."
# Values of the variant that llama.cpp has
VARIANT = {
    "use_dsa": (True,),
    "normalization": ("RMSNorm",),
    "final_norm": ("RMSNorm",),
    "k_rope_only_layernorm": (True,),
    "topk_method": ("noaux_tc",),
    "scoring_func": ("sigmoid",),
    "n_group": (1,),
    "topk_group": (1,),
    "use_dynamic_rsf": (False,),
    "moe_gating_fp32": (False,),
    "attention_gate_type": ("headwise",),
    "swa_attention_gate_type": ("headwise",),
}


class Dots3NoteConverter(SparseConverter):
    arch = "dots3note"
    classes = (
        "Dots3NoteForCausalLM",
        "Dots3NoteForConditionalGeneration",
        "Dots3NoteTextForCausalLM",
    )
    layers = {"self_attn.k_rope_only_layernorm": "attn_k_norm", "self_attn.g_proj": "attn_gate"}
    skipped = ("vision_encoder.", "audio_encoder.")
    roles = {"eot": "<|endofassistant|>"}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        for name, known in VARIANT.items():
            if self.config.get(name, known[0]) not in known:
                raise self.refuse((name,), repr(known[0]))
        if self.integer("swa_qk_rope_head_dim") != self.integer("qk_rope_head_dim"):
            raise self.refuse(("swa_qk_rope_head_dim",), "the same as qk_rope_head_dim")
        if self.integer("swa_q_lora_rank") != self.integer("q_lora_rank"):
            raise self.refuse(("swa_q_lora_rank",), "the same as q_lora_rank")

    def n_drafts(self) -> int:
        return int(f"{DRAFT}embed_tokens.weight" in self.folder.tensors)

    def has_window(self, layer: int) -> bool:
        """Return True for a layer that attends to a window of tokens."""
        types = per_layer(self, "layer_types", self.n_trunk)
        return layer >= self.n_trunk or types[layer] == "sliding_attention"

    def place(self, name: str) -> str:
        return name.replace(DRAFT, f"model.layers.{self.n_trunk}.")

    def kv_sizes(self, layer: int | None) -> tuple[int, int, int]:
        prefix = "swa_" if layer is not None and self.has_window(layer) else ""
        n_head, n_key, n_value = (
            self.integer(f"{prefix}{name}")
            for name in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim")
        )
        return n_head, n_key, n_value

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        rank = ""
        if name.endswith("q_a_layernorm.weight"):
            rank = "q_lora_rank"
        elif name.endswith("kv_a_layernorm.weight"):
            prefix = "swa_" if layer is not None and self.has_window(layer) else ""
            rank = f"{prefix}kv_lora_rank"
        if rank and self.find("apply_mla_qkv_lora_rescale"):
            factor = np.float32(math.sqrt(self.integer("hidden_size") / self.integer(rank)))
            array = array.map(lambda x: x * factor)
        yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        heads = [
            self.integer("swa_num_attention_heads" if self.has_window(i) else "num_attention_heads")
            for i in range(self.n_layer)
        ]
        self.config["num_attention_heads"] = heads
        self.config.pop("head_dim", None)
        super().keys()
        out, rank = self.out, self.integer("swa_kv_lora_rank")
        windows = [self.has_window(i) for i in range(self.n_trunk)]
        n_rot = self.integer("swa_qk_rope_head_dim")
        out.u32("attention.sliding_window", self.integer("sliding_window_size"))
        out.array("attention.sliding_window_pattern", windows)
        out.u32("attention.kv_lora_rank_swa", rank)
        out.u32("attention.key_length_swa", rank + n_rot)
        out.u32("attention.value_length_swa", rank)
        out.u32("attention.key_length_mla_swa", self.integer("swa_qk_nope_head_dim") + n_rot)
        out.u32("attention.value_length_mla_swa", self.integer("swa_v_head_dim"))
        self.draft_key()
        self.copy(*INDEXER_KEYS)
        out.array("attention.indexer.types", [not window for window in windows])

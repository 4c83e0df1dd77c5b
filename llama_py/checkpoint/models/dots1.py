"""Checkpoints of dots.llm1 (conversion/dots1.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS, LAYERS, LLAMA, ROUTED_EXPERTS, name_layers


class Dots1Converter(Qwen2MoeConverter):
    arch = "dots1"
    classes = ("Dots1ForCausalLM",)
    names = {**LLAMA, **name_layers(LAYERS, {**ROUTED_EXPERTS, **HEAD_NORMS})}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.config["num_experts"] = self.integer("n_routed_experts")

    def keys(self) -> None:
        super().keys()
        self.copy(
            (
                ("leading_dense_block_count", "u32!", ("first_k_dense_replace",)),
                ("expert_shared_count", "u32!", ("n_shared_experts",)),
                ("expert_weights_scale", "f32!", ("routed_scaling_factor",)),
                ("expert_weights_norm", "bool!", ("norm_topk_prob",)),
            )
        )

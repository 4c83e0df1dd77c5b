"""Checkpoints of dots.llm1 (conversion/dots1.py)."""

from __future__ import annotations

from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS, LLAMA, ROUTED_EXPERTS
from llama_py.checkpoint.shared_keys import DENSE_LAYERS, EXPERT_NORM, EXPERT_SCALE, SHARED_COUNT


class Dots1Converter(Qwen2MoeConverter):
    arch = "dots1"
    classes = ("Dots1ForCausalLM",)
    names = LLAMA
    layers = {**ROUTED_EXPERTS, **HEAD_NORMS}
    own_keys = (DENSE_LAYERS, SHARED_COUNT, EXPERT_SCALE, EXPERT_NORM)

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.config["num_experts"] = self.integer("n_routed_experts")

"""Checkpoints of StableLM (conversion/stablelm.py)."""

from __future__ import annotations

import re

from llama_py.checkpoint.arrays import LazyArray, NamedArrays, stack
from llama_py.checkpoint.converter import Converter

HEAD_NORM = re.compile(r"(.*\.([qk])_layernorm)\.norms\.(\d+)\.weight")
NORMS = {"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm"}


class StableLmConverter(Converter):
    """StableLM. Some models have a norm for each head."""

    arch = "stablelm"
    classes = ("StableLmForCausalLM", "StableLMEpochForCausalLM", "LlavaStableLMEpochForCausalLM")
    layers = NORMS
    defaults = {"partial_rotary_factor": 0.25}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        match = HEAD_NORM.fullmatch(name)
        if match is None:
            yield from super().tensors(name, array, layer)
            return
        heads = "num_attention_heads" if match[2] == "q" else "num_key_value_heads"
        found = self.gatherer.add(match[1], int(match[3]), array, self.integer(heads))
        if found is not None:
            yield from super().tensors(f"{match[1]}.weight", stack(found), layer)

    def keys(self) -> None:
        is_parallel = self.config.get("model_type") != "stablelm"  # the default
        n_embd, n_head = self.integer("hidden_size"), self.integer("num_attention_heads")
        self.out.set_all({
            "context_length": self.integer("max_position_embeddings"),
            "embedding_length": n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.integer("intermediate_size"),
            "rope.dimension_count": int(self.rope["partial_rotary_factor"] * (n_embd // n_head)),
            "attention.head_count": n_head,
            "attention.head_count_kv": self.integer("num_key_value_heads"),
            "use_parallel_residual": bool(self.config.get("use_parallel_residual", is_parallel)),
            "attention.layer_norm_epsilon": self.find("layer_norm_eps", "norm_eps"),
            "general.file_type": self.file_type,
        })  # fmt: skip

"""Checkpoints of Command R and later models of Cohere (conversion/command_r.py)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter, NextnConverter, count_dense
from llama_py.checkpoint.names import EXPERTS, HEAD_NORMS, NEXTN, SHARED_EXPERTS
from llama_py.checkpoint.shared_keys import VOCAB_SIZE, WINDOW, WINDOWS


class CommandRConverter(Converter):
    arch = "command-r"
    classes = ("CohereForCausalLM",)
    layers = HEAD_NORMS
    needed = ("logit_scale",)

    def keys(self) -> None:
        # max_position_embeddings is less than the context in training
        if (n_ctx := self.find("model_max_length")) is not None:
            self.config["max_position_embeddings"] = n_ctx
        super().keys()
        self.out.f32("logit_scale", self.find("logit_scale"))
        self.out.text("rope.scaling.type", "none")


class WithoutBiasConverter(Converter):
    """A model with stored biases of 0, which llama.cpp does not have."""

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if not name.endswith(".bias"):
            yield from super().tensors(name, array, layer)
        elif array.read().any():
            raise ModelError(
                f"{self.folder.path}: {name} must be 0, because {self.arch} has no bias"
            )


class Cohere2Converter(WithoutBiasConverter):
    arch = "cohere2"
    classes = ("Cohere2ForCausalLM",)
    needed = ("logit_scale", "sliding_window")

    def keys(self) -> None:
        super().keys()
        self.copy(("logit_scale", "f32", ("logit_scale",)), WINDOW, VOCAB_SIZE)
        n = self.integer("hidden_size") // self.integer("num_attention_heads")
        self.out.u32("rope.dimension_count", int(self.config.get("rotary_pct", 1.0) * n))
        self.out.text("rope.scaling.type", "none")


class Cohere2MoeConverter(WithoutBiasConverter, ExpertsConverter, NextnConverter):
    arch = "cohere2moe"
    classes = ("Cohere2MoeForCausalLM",)
    layers = {**EXPERTS, **SHARED_EXPERTS, **NEXTN}
    needed = ("logit_scale", "sliding_window", "layer_types")

    def keys(self) -> None:
        super().keys()
        out, n_ff = self.out, self.integer("intermediate_size")
        types, n_shared = self.find("mlp_layer_types"), self.find("num_shared_experts") or 0
        n_dense = self.find("first_k_dense_replace") or 0
        if isinstance(types, list):
            n_dense = count_dense(types)
        if n_shared and self.config.get(COMBINATION, "average") != "average":
            raise self.refuse((COMBINATION,), "average")
        out.f32("logit_scale", self.find("logit_scale"))
        self.copy(*WINDOWS, VOCAB_SIZE)
        out.u32("expert_feed_forward_length", n_ff)
        out.u32("leading_dense_block_count", n_dense)
        out.boolean("expert_weights_norm", self.config.get("norm_topk_prob", False))
        if n_shared:
            out.u32("expert_shared_count", n_shared)
            out.u32("expert_shared_feed_forward_length", n_ff * n_shared)
        self.draft_key()
        out.u32("rope.dimension_count", self.integer("head_dim"))
        out.text("rope.scaling.type", "none")


COMBINATION = "shared_expert_combination_strategy"

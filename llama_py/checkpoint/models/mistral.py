"""Checkpoints in Mistral's format: params.json, consolidated*.safetensors and tekken.json or
tokenizer.model.vN (conversion/mistral.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import name_layers
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_mistral import write_mistral

NAMES = {
    "tok_embeddings": "token_embd",
    "norm": "output_norm",
    "output": "output",
    **name_layers("layers.{}", {
        "attention_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "attention.wq": "attn_q",
        "attention.wk": "attn_k",
        "attention.wv": "attn_v",
        "attention.wo": "attn_output",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w2": "ffn_down",
        "feed_forward.w3": "ffn_up",
    }),
}  # fmt: skip
CONTEXT = "original_max_position_embeddings"


class ParamsConverter(Converter):
    """A model of params.json."""

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        if folder.config.get("quantization") is not None:
            raise ModelError(
                f"{folder.path}: params.json describes quantized weights, which are not known; use "
                "the model's folder with config.json and model*.safetensors"
            )
        super().__init__(folder, options)

    def keys(self) -> None:
        super().keys()
        out, yarn = self.out, self.find("yarn")
        if yarn is not None:
            out.text("rope.scaling.type", "yarn")
            out.f32("rope.scaling.factor", self.value(yarn, "factor"))
            out.f32("rope.scaling.yarn_beta_fast", self.value(yarn, "beta"))
            out.f32("rope.scaling.yarn_beta_slow", self.value(yarn, "alpha"))
            log_multiplier = 0.0 if self.value(yarn, "apply_scale") else 1.0
            out.f32("rope.scaling.yarn_log_multiplier", log_multiplier)
            out.u32("rope.scaling.original_context_length", self.value(yarn, CONTEXT))
        if (scaling := self.find("llama_4_scaling")) is not None:
            out.f32("attention.temperature_scale", self.value(scaling, "beta"))

    def value(self, found: Mapping[str, float], name: str) -> float:
        """Return a value of an object in params.json. Raises ModelError if it is missing."""
        if not isinstance(found, dict) or name not in found:
            raise ModelError(f"{self.folder.path / 'params.json'}: {name} is missing")
        return float(found[name]) if name != CONTEXT else found[name]

    def vocabulary(self, v: Vocabulary) -> None:
        write_mistral(v)


class MistralConverter(ParamsConverter, LlamaConverter):
    """A model without scaled queries has the architecture of Llama."""

    arch = "llama"
    classes: ClassVar[tuple[str, ...]] = ("params.json",)
    names = NAMES
    permutes = False

    def keys(self) -> None:
        self.config.setdefault("vocab_size", 0)
        super().keys()
        self.out.stored.pop(f"{self.out.arch}.vocab_size", None)  # follows the tokens


class ScaledMistralConverter(MistralConverter):
    arch = "mistral3"
    classes = ("params.json: llama_4_scaling",)

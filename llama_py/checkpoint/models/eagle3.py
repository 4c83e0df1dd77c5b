"""Checkpoints of EAGLE-3 draft models (conversion/llama.py: LlamaModel)."""

from __future__ import annotations

from typing import Any

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import LLAMA
from llama_py.checkpoint.target import TargetConverter
from llama_py.checkpoint.vocabulary import Vocabulary

LAYER = "model.layers.0."


class Eagle3Converter(TargetConverter, LlamaConverter):
    arch = "eagle3"
    classes = (
        "LlamaForCausalLMEagle3",
        "Eagle3LlamaForCausalLM",
        "Eagle3Speculator",
        "Eagle3DraftModel",
    )
    layers = {"hidden_norm": "attn_norm_2"}
    names = {
        **LLAMA,
        "norm": "output_norm",
        "embed_tokens": "token_embd",
        "fc": "fc",
        "input_norm": "enc.output_norm",
    }
    skipped = ("t2d",)
    target_is_needed = True

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        folder.config |= folder.config.get("transformer_layer_config", {})
        super().__init__(folder, options)
        out, config, target = self.out, folder.whole_config, self.target_config
        n = target["num_hidden_layers"]
        layers = config.get("eagle_aux_hidden_state_layer_ids") or [2, n // 2, n - 3]
        out.array("target_layers", layers)
        size: Any = config.get("target_hidden_size")
        out.u32("target_hidden_size", target["hidden_size"] if size is None else size)
        out.boolean("norm_before_residual", config.get("norm_before_residual", False))
        out.boolean("norm_before_fc", config.get("norm_before_fc", False))

    def select(self, name: str) -> str | None:
        for start in ("midlayer.", "layers.0."):
            if name.startswith(start):
                name = LAYER + name.removeprefix(start)
        return super().select(name)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name == "d2t":
            self.token_ids = self.target_ids(array, self.target_config["vocab_size"])
        else:
            yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        target = Vocabulary(self.target, self.out, v.n_vocab, v.pre)
        super().vocabulary(target)

"""Vision encoder of Janus Pro (conversion/januspro.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import name_tower


class JanusMediaConverter(MediaConverter):
    classes = ("JanusForConditionalGeneration",)
    names = {**name_tower("model.vision_model"), "model.aligner.fc1": "mm.0"}
    keeps = r"model\.(aligner|vision_model)\."
    renames = ((r"^(aligner|vision_model)\.", r"model.\1."),)
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 384,
        "patch_size": 16, "hidden_act": "gelu", "mlp_ratio": 4.0,
    }  # fmt: skip

    def read_vision(self) -> Config:
        found = super().read_vision()
        size = round(self.need(found, "hidden_size") * found["mlp_ratio"])
        return {"intermediate_size": int(size), **found}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "janus_pro",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
        })  # fmt: skip
        self.put_activation(self.vision.get("hidden_act"))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        start = "model.aligner.hidden_layers."
        if name.startswith(start):
            yield f"mm.{(layer or 0) + 1}.{name.rpartition('.')[2]}", array
        else:
            yield from super().tensors(name, array, layer)

"""Vision encoder of Llama 4 (conversion/llama4.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.media import EPSILON, MediaConverter
from llama_py.checkpoint.media_names import name_blocks


class Llama4VisionConverter(MediaConverter):
    classes = ("Llama4ForConditionalGeneration",)
    names = {
        **name_blocks("vision_model.model.layers.{}"),
        "vision_model.class_embedding": "v.class_embd",
        "vision_model.patch_embedding.linear": "v.patch_embd",
        "vision_model.positional_embedding_vlm": "v.position_embd",
        "vision_model.layernorm_pre": "v.pre_ln",
        "vision_model.layernorm_post": "v.post_ln",
        "vision_model.vision_adapter.mlp.fc1": "mm.model.mlp.1",
        "vision_model.vision_adapter.mlp.fc2": "mm.model.mlp.2",
        "multi_modal_projector.linear_1": "mm.model.fc",
    }
    renames = ((r"(positional_embedding_vlm)$", r"\1.weight"),)
    keeps = r".*(multi_modal_projector|vision_model)"
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34,
        "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "norm_eps": 1e-5,
        "pixel_shuffle_ratio": 0.5, "hidden_act": "gelu",
    }  # fmt: skip

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "llama4",
            f"vision.{EPSILON}": self.vision["norm_eps"],
            "vision.projector.scale_factor": int(1.0 / self.vision["pixel_shuffle_ratio"]),
        })  # fmt: skip
        if self.vision["hidden_act"] != "gelu":
            raise self.refuse(("hidden_act",), "gelu")
        self.put({"use_gelu": True})

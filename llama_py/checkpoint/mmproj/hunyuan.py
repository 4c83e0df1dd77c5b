"""Vision encoder of HunyuanVL and HunyuanOCR (conversion/hunyuan.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.names import pairs


class HunyuanVLMediaConverter(MediaConverter):
    classes = ("HunYuanVLForConditionalGeneration",)
    names = {
        "vit.embeddings.patch_embedding": "v.patch_embd",
        "vit.embeddings.position_embedding": "v.position_embd",
        **name_blocks("vit.layers.{}"),
        **pairs("""
            vit.perceive.before_rms=mm.pre_norm vit.perceive.after_rms=mm.post_norm
            vit.perceive.proj.{}=mm.{} vit.perceive.mlp=mm.model.fc
            vit.perceive.image_newline=v.image_newline vit.perceive.image_sep=v.view_seperator
            vit.perceive.image_begin=mm.image_begin vit.perceive.image_end=mm.image_end
        """),
    }
    keeps = r"vit\."
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "patch_size": 16, "max_image_size": 2048,
        "spatial_merge_size": 2,
    }  # fmt: skip
    not_bf16 = rf"{MediaConverter.not_bf16}|mm\.[02]\.weight"

    def read_vision(self) -> Config:
        found = super().read_vision()
        return {"image_size": found["max_image_size"], **found}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "hunyuanvl",
            "use_gelu": True,
            f"vision.{EPSILON}": self.vision.get("rms_norm_eps", 1e-5),
            "vision.spatial_merge_size": self.vision["spatial_merge_size"],
            "vision.image_min_pixels": int(self.process("min_pixels")),
            "vision.image_max_pixels": int(self.process("max_pixels")),
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "position_embedding" in name:  # without the token of the class
            array = array.rows(1)
        yield from super().tensors(name, array, layer)
